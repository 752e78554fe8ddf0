"""What became of the layouts that split a model, kept from search to search.

No price changes it: whoever asks the same model again, with other work, another budget or other
providers, meets the same nodes with the same links. An outcome is found again for equal facts
alone: the model, its constants, everything known of the device and its links, and what it was asked
to beat.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

from ...profiles.curves.user_curves import user_curves_digest
from ..hardware.cluster import Site
from ..plan.layout import Layout
from ..plan.setup import Setup
from ..predict.kept_tables import KeptTables
from ..predict.model_cache import ModelCache
from .search_space import Space
from .split_layouts import Found, Outcome

MOST_KEPT = 20_000
"""Outcomes of one model; a search of the whole catalogue to 512 nodes has 1,000."""

_CLASSES = {one.__name__: one for one in (Found, Layout, Outcome, Setup)}


@dataclass
class KeptOutcomes:
    """The outcomes of one model and search space, read once and written once."""

    kept: KeptTables | None
    made_from: Callable[[], Mapping[str, object]]
    """Everything that all of them follow from but the code, as JSON can hold it."""
    _known: dict[str, object] | None = None
    _sites: dict[int, tuple[Site, str]] = field(default_factory=dict)
    _added: bool = False

    @classmethod
    def of(cls, cache: ModelCache, space: Space) -> KeptOutcomes:
        """Return the outcomes of a model and of what is tried with it."""

        def facts() -> dict[str, object]:
            calibration = cache.calibration
            return {
                "what": "outcomes of split layouts",
                "profile": cache.profile_digest,
                "constants": sorted(cache.constants.items()),
                "curves": user_curves_digest(cache.curve_choice),
                "left_out": sorted(cache.curve_choice.left_out),
                "calibration": None if calibration is None else calibration.model_dump_json(),
                "recomputes": space.recomputes,
                "micro_batches": space.micro_batches.tolist(),
                "grad_accums": space.grad_accums,
                "global_batch": space.global_batch,
            }

        return cls(cache.kept, facts)

    def outcome(self, key: tuple[object, ...], make: Callable[[], Outcome]) -> Outcome:
        """Return the outcome of a key, which is computed if it is not known."""
        return _whole(self._value(key, lambda: _plain(make())))

    def flag(self, key: tuple[object, ...], make: Callable[[], bool]) -> bool:
        """Return whether something holds, which is found out if it is not known."""
        return bool(self._value(key, make))

    def _value(self, key: tuple[object, ...], make: Callable[[], object]) -> object:
        known = self._read()
        text = repr(key)
        if text not in known:
            known[text] = make()
            self._added = True
        return known[text]

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

    def save(self) -> None:
        """Keep what was added, if there is a place for it."""
        if self.kept is None or not self._added or self._known is None:
            return
        newest = list(self._known.items())[-MOST_KEPT:]
        self.kept.put(self._key(), zlib.compress(json.dumps(dict(newest)).encode(), level=1))
        self._added = False

    def _key(self) -> str:
        text = json.dumps(self.made_from(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def _read(self) -> dict[str, object]:
        if self._known is None:
            content = None if self.kept is None else self.kept.get(self._key())
            self._known = {} if content is None else _decoded(content)
        return self._known


def _decoded(content: bytes) -> dict[str, object]:
    """Return what was kept; nothing where these bytes are not that."""
    try:
        found = json.loads(zlib.decompress(content))
    except (zlib.error, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _plain(value: object) -> object:
    """Return a value as JSON can hold it; `_whole` makes it again, with tuples for lists."""
    if is_dataclass(value) and not isinstance(value, type):
        parts = {one.name: _plain(getattr(value, one.name)) for one in fields(value)}
        return {"class": type(value).__name__, **parts}
    if isinstance(value, frozenset):
        return {"class": "frozenset", "items": sorted(value)}
    return [_plain(one) for one in value] if isinstance(value, tuple) else value


def _whole(value: object) -> Any:
    if isinstance(value, list):
        return tuple(_whole(one) for one in value)
    if not isinstance(value, dict):
        return value
    parts = {name: _whole(one) for name, one in value.items() if name != "class"}
    if value["class"] == "frozenset":
        return frozenset(parts["items"])
    return _CLASSES[value["class"]](**parts)


def setup_text(setup: Setup) -> str:
    """Return what is equal for equal setups, in every process."""
    return json.dumps(_plain(setup))
