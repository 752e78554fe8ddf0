"""What stopped the user's own launches, counted from what the store keeps of them.

A stop is a loss of the machines, or of the way between them, that no person asked for. Which ends
are counted, of an attempt whose machines are gone:

    end                              its hours   a stop
    succeeded, stopped by the user   yes         no
    ended by a limit of the guard    yes         no
    lost, preempted or hung, and     yes         one
    taken up again afterwards
    the same, and never taken up     no          no: a job that had ended looks alike
    failed                           no          no: an exit code is that of the user's own code,
                                                 and a broken device may hide behind one
    nothing rented                   no          no

A hang is a job that showed no sign of life after its first step. What SkyPilot recovers by itself
(managed spot jobs) counts by its recoveries, however the job ended: a loss of machines alone makes
them. Its hours hold the waits between machines.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...catalog.units import SECONDS_PER_HOUR
from ...planner.goodput.own_stops import CountedStops, Market, OwnStops
from .launch_record import Attempt, LaunchRecord

UNSTOPPED = ("succeeded", "stopped")
GONE = ("lost", "preempted")
HUNG = "heartbeat"
"""The guard's word for a run that shows no sign of life."""
NOT_TRAINED = ("failed", "guarded", "lost")
NOWHERE = "global"
"""The catalogue's region of a provider that has none."""


def own_stops(records: Iterable[LaunchRecord]) -> OwnStops:
    """Return what stopped launches, by accelerator and by market.

    Launches of versions that did not keep their accelerators, provider or guard's word count where
    that is not needed.
    """
    failures: dict[str, CountedStops] = {}
    interruptions: dict[Market, CountedStops] = {}
    known = untrained = 0
    for record in records:
        market = _market(record)
        for attempt, counted in _counted(record):
            if not attempt.spot and record.accelerator is not None:
                failures[record.accelerator] = _sum(failures.get(record.accelerator), counted)
            elif attempt.spot and market is not None:
                interruptions[market] = _sum(interruptions.get(market), counted)
        trained = [one.trained for one in record.attempts if one.trained is not None]
        if trained and not record.is_open:
            known += 1
            untrained += not any(trained) and record.outcome in NOT_TRAINED
    return OwnStops(
        failures=failures, interruptions=interruptions, launches=known, untrained=untrained
    )


def _counted(record: LaunchRecord) -> Iterator[tuple[Attempt, CountedStops]]:
    """Yield the attempts that say something of stops, with what each adds to the counts."""
    for number, attempt in enumerate(record.attempts):
        began, ended = attempt.began_at, attempt.ended_at
        is_again = any(one.began_at is not None for one in record.attempts[number + 1 :])
        stops = _stops(record, attempt, is_again=is_again)
        if stops is None or began is None or ended is None:
            continue
        if record.accelerators is None and not attempt.spot:
            continue
        hours = max(0.0, (ended - began).total_seconds()) / SECONDS_PER_HOUR
        if hours:
            yield (
                attempt,
                CountedStops(
                    runs=1,
                    hours=hours,
                    accelerator_hours=hours * (record.accelerators or 0),
                    stops=stops,
                ),
            )


def _stops(record: LaunchRecord, attempt: Attempt, *, is_again: bool) -> int | None:
    """Return how many stops an attempt had; None where it cannot be told."""
    outcome = attempt.outcome
    if record.managed and attempt.spot:
        # Handed over to machines on demand, its hours would be those of both.
        return attempt.preemptions if all(one.spot for one in record.places) else None
    if outcome in UNSTOPPED:
        return 0
    if outcome in GONE:
        return 1 if is_again else None
    if outcome == "guarded" and attempt.guard_why is not None:
        if attempt.guard_why != HUNG:
            return 0
        return 1 if is_again and attempt.trained else None
    return None


def _market(record: LaunchRecord) -> Market | None:
    """Return where spot machines were bought; None where that is several regions, or not known."""
    if record.provider is None or record.accelerator is None:
        return None
    regions = {
        one.infra.split("/")[1] if "/" in one.infra else NOWHERE
        for one in record.places
        if one.spot
    }
    return (record.provider, regions.pop(), record.accelerator) if len(regions) == 1 else None


def _sum(one: CountedStops | None, other: CountedStops) -> CountedStops:
    return other if one is None else one + other
