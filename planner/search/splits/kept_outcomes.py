"""What became of the layouts that were tried, kept from search to search.

No price changes it: whoever asks the same model again, with other work, another budget or other
providers, meets the same nodes with the same links. An outcome is found again for equal facts
alone: the model, its constants, everything known of the device and its links, and what it was asked
to beat.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any

from ....profiles.curves.user_curves import user_curves_digest
from ...hardware.cluster import Site
from ...plan.layout import Layout
from ...plan.setup import Setup
from ...predict.kept.kept_values import KeptValues, plain, setup_text
from ...predict.kept.model_cache import ModelCache
from ..found import Found
from ..search_space import Space
from .outcome import Outcome

_CLASSES = {one.__name__: one for one in (Found, Layout, Outcome, Setup)}


@dataclass
class KeptOutcomes:
    """The outcomes of one model and search space."""

    values: KeptValues
    _sites: dict[int, tuple[Site, str]] = field(default_factory=dict)

    @classmethod
    def of(cls, cache: ModelCache, space: Space) -> KeptOutcomes:
        """Return the outcomes of a model and of what is tried with it."""

        def facts() -> dict[str, object]:
            calibration = cache.calibration
            return {
                "what": "outcomes of layouts",
                "profile": cache.profile_digest,
                "constants": sorted(cache.constants.items()),
                "curves": user_curves_digest(cache.curve_choice),
                "left_out": sorted(cache.curve_choice.left_out),
                "calibration": None if calibration is None else calibration.model_dump_json(),
                "micro_batches": space.micro_batches.tolist(),
                "space": [
                    (one.name, repr(getattr(space, one.name)))
                    for one in fields(space)
                    if one.name not in ("node_counts", "batch", "micro_batches")
                ],
            }

        return cls(KeptValues(cache.kept, facts))

    def outcomes(
        self, keys: Sequence[tuple[object, ...]], make: Callable[[list[int]], list[Outcome]]
    ) -> list[Outcome]:
        """Return the outcomes of keys, of which those that are not known are computed together.

        Args:
            keys: of the outcomes, no two alike.
            make: computes those of the keys in these places.
        """
        missing = [i for i, key in enumerate(keys) if not self.values.holds(key)]
        made = dict(zip(missing, make(missing) if missing else (), strict=True))
        return [
            _whole(self.values.value(key, lambda i=i: plain(made[i]))) for i, key in enumerate(keys)
        ]

    def flag(self, key: tuple[object, ...], make: Callable[[], bool]) -> bool:
        """Return whether something holds, which is found out if it is not known."""
        return bool(self.values.value(key, make))

    def site(self, site: Site) -> str:
        """Return what tells the nodes of a site from others: device, links and their number."""
        if id(site) not in self._sites:
            # The site is held, so that no other one gets its id.
            links = (site.intra_link, site.inter_link)
            facts = [site.accelerator.model_dump_json(), *(one.model_dump_json() for one in links)]
            sizes = (site.per_node, site.link_domain, site.host_memory_bytes, site.vcpus)
            text = "\n".join([*facts, repr(sizes)])
            self._sites[id(site)] = site, hashlib.sha256(text.encode()).hexdigest()[:24]
        return self._sites[id(site)][1]


@lru_cache(maxsize=1024)
def layouts_text(layouts: tuple[Layout, ...], base: Setup) -> str:
    """Return what tells layouts with what runs on a rank from others, in every process."""
    return hashlib.sha256(f"{setup_text(base)}\n{layouts}".encode()).hexdigest()[:24]


def _whole(value: object) -> Any:
    if isinstance(value, list):
        return tuple(_whole(one) for one in value)
    if not isinstance(value, dict):
        return value
    parts = {name: _whole(one) for name, one in value.items() if name != "class"}
    if value["class"] == "frozenset":
        return frozenset(parts["items"])
    return _CLASSES[value["class"]](**parts)
