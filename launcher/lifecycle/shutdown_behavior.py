"""EC2's shutdown behaviour: a machine that powers itself off is terminated, with its disk.

EC2's default stops it, and its disk stays billed. SkyPilot 0.14 has no setting for that
(`InstanceInitiatedShutdownBehavior` is neither in its AWS template nor in its configuration), so
it is changed from here, as soon as the machines are up. Only where their disks hold no results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType

from ...catalog.errors import GpuplanError
from ..labels import slug
from ..store.launch_record import LaunchRecord
from .looking import Looking

POLL_S = 20.0
"""How often machines that start are looked for: EC2 boots one in about a minute."""
JOIN_S = 30.0
CLOUD = "aws"
SetTerminate = Callable[[str, Sequence[str]], Sequence[str]]
"""Set it for the machines with a run's label in regions; return the ids of those that have it."""


def loses_nothing(*, managed: bool, fetch: str | None) -> bool:
    """Return whether a launch's disks may go with a machine that powers itself off.

    Args:
        managed: whether SkyPilot replaces its machines by itself. Those are not followed from here.
            The spot ones are of a one-time request, which EC2 cannot stop; on-demand ones that
            come after them keep EC2's default.
        fetch: where results are brought to from the disk; None where they are elsewhere already.
    """
    return not managed and fetch is None


class TerminateOnPowerOff:
    """Sets the behaviour while a launch waits for its machines; a context manager.

    From a thread, since the wait lasts until set-up is done, and a laptop may be closed before.
    """

    def __init__(
        self,
        record: LaunchRecord,
        set_terminate: SetTerminate,
        tell: Callable[[str], None],
        *,
        poll_s: float = POLL_S,
    ) -> None:
        """Take note of the launch.

        Args:
            record: the launch.
            set_terminate: asks the cloud.
            tell: called with a message for the user, if it could not be set.
            poll_s: from one look for machines to the next.
        """
        self._run, self._nodes = slug(record.run), record.nodes
        self._regions = _regions(record)
        self._set_terminate, self._tell = set_terminate, tell
        self._looking = Looking(
            self._ask, every_s=poll_s, join_s=JOIN_S, is_wanted=bool(self._regions)
        )
        self._is_set = False

    def __enter__(self) -> TerminateOnPowerOff:
        """Begin to look for machines."""
        self._looking.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Set it a last time where it is not set for all machines, and say so if that fails."""
        self._looking.__exit__(kind, error, traceback)
        if kind is not None or self._is_set or not self._regions:
            return
        try:
            if self._ask():
                return
            why = f"EC2 lists fewer than {self._nodes} machines of this run"
        except GpuplanError as failed:
            why = str(failed)
        self._tell(
            "Should these machines power themselves off, EC2 stops them and their disks stay"
            f" billed, as that could not be changed to terminate: {why}"
        )

    def _ask(self) -> bool:
        self._is_set = len(self._set_terminate(self._run, self._regions)) >= self._nodes
        return self._is_set


def _regions(record: LaunchRecord) -> tuple[str, ...]:
    """Return the regions of AWS in which a launch is tried; none where its disks must stay."""
    if not loses_nothing(managed=record.managed, fetch=record.fetch):
        return ()
    parts = [place.infra.split("/") for place in record.places]
    return tuple(dict.fromkeys(one[1] for one in parts if one[0] == CLOUD and len(one) > 1))
