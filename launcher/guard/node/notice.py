"""The notice by which a cloud warns a spot machine before it takes it away.

    aws     /meta-data/spot/instance-action: 404 until there is one, then
            {"action": "terminate", "time": "2026-11-23T18:02:00Z"}, two minutes ahead
    gcp     /instance/preempted: FALSE, then TRUE, 30 seconds ahead
    azure   /scheduledevents: an event of type Preempt that names this machine, 30 seconds ahead at
            least

Each as its provider documents it. All three try to warn and promise nothing: without a notice a
machine goes as it always did, and the run goes back to its newest checkpoint.
"""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass
from http.client import HTTPException
from typing import TYPE_CHECKING, Any

from .metadata import told

if TYPE_CHECKING:
    from .metadata import Ask

LEFT_S = {"aws": 120.0, "gcp": 30.0, "azure": 30.0}
"""How long the machine is left, seconds. Clouds without an entry have no notice."""
EVERY_S = {"aws": 5.0, "gcp": 1.0, "azure": 1.0}
"""How often the service is asked; AWS recommends 5 seconds, Azure one."""
EVENTS = "/scheduledevents?api-version=2020-07-01"
OWN_NAME = "/instance/compute/name?api-version=2021-02-01&format=text"
FAILURES = (OSError, ValueError, HTTPException)
"""No notice, or none that can be read."""


@dataclass(frozen=True)
class Notice:
    """A machine is about to be taken away."""

    cloud: str
    left_s: float
    """How long it is left, from when the notice was seen."""
    said: str
    """What the cloud said, in its own words."""


def notice(cloud: str, ask: Ask | None = None) -> Notice | None:
    """Return the notice of this machine; None where there is none, or it cannot be told.

    Args:
        cloud: as SkyPilot names it, lower case.
        ask: from method, URL and headers to what the machine's metadata service answers.
    """
    try:
        said = _said(cloud, ask)
    except FAILURES:
        return None
    return None if said is None else Notice(cloud, LEFT_S[cloud], said)


def _said(cloud: str, ask: Ask | None) -> str | None:
    if cloud == "aws":
        action = json.loads(told(cloud, "/meta-data/spot/instance-action", ask))
        return f"{action['action']} at {action['time']}" if _is_action(action) else None
    if cloud == "gcp":
        is_preempted = told(cloud, "/instance/preempted", ask).upper() == "TRUE"
        return "preempted" if is_preempted else None
    if cloud == "azure":
        events = json.loads(told(cloud, EVENTS, ask))
        found = _preempts(events)
        return _own(found, ask) if found else None
    return None


def _is_action(values: Any) -> bool:
    return isinstance(values, dict) and {"action", "time"} <= set(values)


def _preempts(values: Any) -> list[dict[str, Any]]:
    events = values.get("Events") if isinstance(values, dict) else None
    listed = events if isinstance(events, list) else []
    return [one for one in listed if isinstance(one, dict) and one.get("EventType") == "Preempt"]


def _own(events: list[dict[str, Any]], ask: Ask | None) -> str | None:
    """Return what Azure says of this machine: it lists the events of its whole group."""
    try:
        name = told("azure", OWN_NAME, ask)
    except FAILURES:
        name = ""
    for event in events:
        resources = event.get("Resources") or []
        # A name that is not known is taken for this one: to save once too often costs a restart.
        if not name or not resources or name in resources:
            return f"Preempt at {event.get('NotBefore') or 'once'}"
    return None


class Notices:
    """Asks in a thread of its own, as an answer may take seconds; the loop only looks."""

    def __init__(self, cloud: str, ask: Ask | None = None) -> None:
        """Listen to nothing yet.

        Args:
            cloud: as SkyPilot names it.
            ask: does the requests.
        """
        self._cloud = cloud.lower()
        self._ask = ask
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._seen_at_s = 0.0
        self.seen: Notice | None = None
        """The first notice; None until there is one."""

    @property
    def left_s(self) -> float:
        """Return how long this machine is left; 0 without a notice."""
        if self.seen is None:
            return 0.0
        return max(0.0, self._seen_at_s + self.seen.left_s - time.monotonic())

    def start(self) -> None:
        """Begin to ask, where the cloud gives notices."""
        if self._cloud in LEFT_S:
            self._thread.start()

    def stop(self) -> None:
        """Ask no more."""
        self._over.set()

    def _run(self) -> None:
        while self.seen is None:
            self._seen_at_s = time.monotonic()
            self.seen = notice(self._cloud, self._ask)
            if self._over.wait(EVERY_S[self._cloud]):
                return
