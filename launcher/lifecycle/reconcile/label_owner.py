"""The owner of labelled machines: this store, somebody else, or not known.

One account, and one SkyPilot server, may serve several people, laptops and stores. Only what
carries this store's id, for a run that this store keeps, and its owner's name or a run that its
user launched under another, is this store's own.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

Standing = Literal["own", "unattributed", "others"]


@dataclass(frozen=True, kw_only=True)
class Here:
    """Who asks, from which store. Names are as labels have them (`slug`)."""

    store_id: str | None
    """Id of the store that asks; None where there is no store yet."""
    owner: str
    runs: Collection[str]
    """Run ids of the launches that the store keeps."""
    launched: Collection[str] = ()
    """Run ids of those among them that whoever asks has launched, under whatever owner."""


@dataclass(frozen=True)
class Holder:
    """Who owns machines, and the reason for it."""

    standing: Standing
    text: str


def holder(here: Here, *, run: str | None, store_id: str | None, owner: str | None) -> Holder:
    """Return who owns machines, from their labels alone; None is a missing label.

    >>> here = Here(store_id="5a", owner="ann", runs={"net-1"})
    >>> holder(here, run="net-1", store_id="5a", owner="ann").standing
    'own'
    >>> holder(here, run="net-1", store_id="7b", owner="ann").standing
    'others'
    """
    named = owner or "an owner without a name"
    if store_id is not None and store_id != here.store_id:
        return Holder("others", f"launched by {named} from another store ({store_id})")
    is_launched = store_id is not None and run in here.launched
    if owner is not None and owner != here.owner and not is_launched:
        return Holder("others", f"launched by {named}; if that is you, give --owner {owner}")
    if store_id is None:
        return Holder(
            "unattributed",
            "launched before machines were labelled with their store, so whose they are is not"
            " known",
        )
    if owner is None or run not in here.runs:
        return Holder(
            "unattributed",
            "labelled with this store's id, but their run is not in it, as after a store was"
            " copied or restored",
        )
    return Holder("own", "")
