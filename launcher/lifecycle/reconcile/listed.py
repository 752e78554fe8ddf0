"""The machines of one launch that the clouds themselves list, whatever SkyPilot knows of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...labels import slug
from ...store.launch_record import LaunchRecord
from ..engine import EngineError
from .discrepancy import LabelledMachine, Listing

AWS = "aws"


def listed_by(
    instances: Callable[[Sequence[str]], Listing],
) -> Callable[[LaunchRecord], tuple[str, ...] | None]:
    """Return what tells the machines of a launch, from what lists all machines of regions.

    It returns None where a place of the launch is of another cloud, or gave no answer: machines may
    be there unseen.
    """

    def listed(record: LaunchRecord) -> tuple[str, ...] | None:
        regions = _regions(record)
        if not regions:
            return None
        try:
            found = instances(regions)
        except EngineError:
            return None
        own = [one for one in found.instances if _is_of(one, record)]
        unseen = {region for one in (*found.skipped, *found.failed) for region in one.regions}
        is_asked = AWS in found.clouds and not unseen & set(regions)
        if not own and not (is_asked and _is_all_aws(record)):
            return None
        return tuple(f"{one.instance_id} in {one.region}" for one in own)

    return listed


def _is_of(machine: LabelledMachine, record: LaunchRecord) -> bool:
    return machine.run == slug(record.run)


def _regions(record: LaunchRecord) -> list[str]:
    places = [one.infra.split("/") for one in record.places]
    return sorted({one[1] for one in places if one[0] == AWS and len(one) > 1})


def _is_all_aws(record: LaunchRecord) -> bool:
    return all(one.infra.split("/")[0] == AWS for one in record.places)
