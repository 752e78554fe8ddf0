"""What Google advises: scores and history of spot machines, windows of Calendar mode. Read-only.

All three are POST requests that change nothing:
https://cloud.google.com/compute/docs/reference/rest/v1/advice (2026-11-25).
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, TypeVar

from ..asking import ask_everywhere
from ..interface import (
    Asked,
    CalendarWindow,
    CloudError,
    Question,
    Score,
    SpotHistory,
    Tell,
    Unanswered,
    WindowStatus,
)
from .client import GcpClients

COMPUTE = "google.cloud.compute_v1"
SPEC = "wanted"
"""The name of the one specification that a request for windows may hold."""
LEAD = timedelta(hours=87)
"""Between a request in Calendar mode and its start, for accelerators that are GPUs:
https://cloud.google.com/compute/docs/instances/future-reservations-calendar-mode-overview."""
HORIZON = timedelta(days=60)
"""How far ahead a start is looked for: machines with GPUs are shown up to 60 days in advance, by
https://cloud.google.com/compute/docs/instances/future-reservations-calendar-mode-overview."""
STATUSES: dict[str, WindowStatus] = {
    "RECOMMENDED": "possible",
    "NO_CAPACITY": "no capacity",
    "CONDITIONS_NOT_MET": "conditions not met",
    "NOT_SUPPORTED": "not supported",
}
T = TypeVar("T")


class GcpAdvice:
    """The three questions for advice, of one project.

    Args:
        gcp: Its clients.
    """

    def __init__(self, gcp: GcpClients) -> None:
        self._gcp = gcp

    def scores(
        self, asked: Asked, zones: set[tuple[str, str]], tell: Tell
    ) -> tuple[list[Score], list[Unanswered]]:
        """Return how likely so many spot machines are to be had in each region."""
        return self._each(asked, zones, self._score, "scores", tell)

    def histories(
        self, asked: Asked, zones: set[tuple[str, str]], tell: Tell
    ) -> tuple[list[SpotHistory], list[Unanswered]]:
        """Return how spot machines fared in each region, and what they cost."""
        return self._each(asked, zones, self._history, "histories", tell)

    def windows(
        self, asked: Asked, zones: set[tuple[str, str]], tell: Tell
    ) -> tuple[list[CalendarWindow], list[Unanswered]]:
        """Return when and where so many machines can be reserved in Calendar mode."""
        found, silent = self._each(asked, zones, self._windows_of, "windows", tell)
        return [one for several in found for one in several], silent

    def _each(
        self,
        asked: Asked,
        zones: set[tuple[str, str]],
        ask: Callable[[Asked, str, str], T | None],
        question: Question,
        tell: Tell,
    ) -> tuple[list[T], list[Unanswered]]:
        """Return what is advised of each machine type in each region that offers it."""
        places = {(zone.rsplit("-", 1)[0], name) for name, zone in zones}
        answers, silent = ask_everywhere(
            [one for one in asked.regions if any(place[0] == one for place in places)],
            lambda region: [
                found
                for name in asked.instances
                if (region, name) in places and (found := ask(asked, region, name)) is not None
            ],
            question=question,
            what=f"{question} of Google Cloud",
            patience=self._gcp.patience,
            tell=tell,
        )
        return [one for found in answers.values() for one in found], silent

    def _advice(self, method: str, action: str, region: str, body: str, request: Any) -> Any:
        given = {"project": self._gcp.project, "region": region, body: request}
        permission = f"the method compute.advice.{action}"
        return self._gcp.one(COMPUTE, "AdviceClient", method, permission, given)

    def _score(self, asked: Asked, region: str, name: str) -> Score | None:
        request = {
            "instance_properties": {"scheduling": {"provisioning_model": "SPOT"}},
            "instance_flexibility_policy": {
                "instance_selections": {"one": {"machine_types": [name]}}
            },
            "size": asked.nodes,
        }
        body = "capacity_advice_request_resource"
        answer = self._advice("capacity", "capacity", region, body, request)
        found = [one.scores.obtainability for one in answer.recommendations]
        if not found:
            return None
        return Score(
            region=region,
            zone=None,
            instance_type=name,
            score=max(found),
            of=1.0,
            source="Compute Engine advice.capacity, obtainability from 0 to 1",
        )

    def _history(self, _asked: Asked, region: str, name: str) -> SpotHistory | None:
        request = {
            "instance_properties": {
                "machine_type": name,
                "scheduling": {"provisioning_model": "SPOT"},
            },
            "types": ["PREEMPTION", "PRICE"],
        }
        body = "capacity_history_request_resource"
        answer = self._advice("capacity_history", "capacityHistory", region, body, request)
        shares = sorted(_shares(answer.preemption_history))
        prices = sorted(_prices(answer.price_history))
        if not shares and not prices:
            return None
        times = [one for one, _ in (*shares, *prices)]
        return SpotHistory(
            region=region,
            instance_type=name,
            begins=min(times),
            preempted_last=shares[-1][1] if shares else None,
            preempted_low=min((share for _, share in shares), default=None),
            preempted_high=max((share for _, share in shares), default=None),
            usd_low=min((usd for _, usd in prices), default=None),
            usd_high=max((usd for _, usd in prices), default=None),
            source="Compute Engine advice.capacityHistory",
        )

    def _windows_of(self, asked: Asked, region: str, name: str) -> list[CalendarWindow] | None:
        hours = asked.block_hours
        assert hours is not None
        request = {
            "future_resources_specs": {
                SPEC: {
                    "target_resources": {
                        "specific_sku_resources": {
                            "machine_type": name,
                            "instance_count": asked.nodes,
                        }
                    },
                    "time_range_spec": {
                        "min_duration": f"{hours * 3600}s",
                        "max_duration": f"{hours * 3600}s",
                        "start_time_not_earlier_than": _text(asked.now + LEAD),
                        "start_time_not_later_than": _text(asked.now + HORIZON),
                    },
                }
            }
        }
        body = "calendar_mode_advice_request_resource"
        answer = self._advice("calendar_mode", "calendarMode", region, body, request)
        found = []
        for one in answer.recommendations:
            advised = one.recommendations_per_spec.get(SPEC)
            if advised is not None:
                found += self._read_windows(advised, asked, region, name)
        return found

    def _read_windows(
        self, advised: Any, asked: Asked, region: str, name: str
    ) -> Iterable[CalendarWindow]:
        def window(zone: str, status: WindowStatus, **more: Any) -> CalendarWindow:
            return CalendarWindow(
                region=region,
                zone=zone.rpartition("/")[2],
                instance_type=name,
                instances=asked.nodes,
                status=status,
                source="Compute Engine advice.calendarMode",
                **more,
            )

        if advised.location and advised.start_time and advised.end_time:
            starts, ends = _time(advised.start_time), _time(advised.end_time)
            zone = advised.location.rpartition("/")[2]
            command = self._command(zone, name, asked.nodes, starts, ends)
            yield window(zone, "recommended", starts=starts, ends=ends, command=command)
        for zone, other in advised.other_locations.items():
            status = STATUSES.get(other.status)
            if status is not None:
                yield window(zone, status)

    def _command(self, zone: str, name: str, nodes: int, starts: datetime, ends: datetime) -> str:
        """Return what reserves a window; it cannot be taken back once it is submitted."""
        reservation = f"gpuplan-{name}-{starts:%Y%m%d}"
        return shlex.join(
            [
                *("gcloud", "compute", "future-reservations", "create", reservation),
                *(f"--project={self._gcp.project}", f"--zone={zone}"),
                *(f"--machine-type={name}", f"--total-count={nodes}"),
                *(f"--start-time={_text(starts)}", f"--end-time={_text(ends)}"),
                *("--reservation-mode=CALENDAR", "--deployment-type=DENSE"),
                *("--auto-delete-auto-created-reservations", "--require-specific-reservation"),
                "--planning-status=SUBMITTED",
            ]
        )


def _shares(records: Iterable[Any]) -> Iterable[tuple[datetime, float]]:
    """Yield when a record begins, and which share of the machines that stopped was taken away."""
    for one in records:
        rate = one.preemption_rate
        if one.interval.start_time and math.isfinite(rate) and 0 <= rate <= 1:
            yield _time(one.interval.start_time), rate


def _prices(records: Iterable[Any]) -> Iterable[tuple[datetime, Decimal]]:
    """Yield when a record begins, and the list price of one machine; none in other currencies."""
    for one in records:
        price = one.list_price
        usd = Decimal(price.units) + Decimal(price.nanos) / 10**9
        if one.interval.start_time and price.currency_code == "USD" and usd > 0:
            yield _time(one.interval.start_time), usd


def _text(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _time(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise CloudError("the answer is cut off or damaged", temporary=True) from None
    if moment.tzinfo is None:
        raise CloudError("the answer is cut off or damaged", temporary=True)
    return moment
