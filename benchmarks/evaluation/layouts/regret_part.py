"""The part of docs/accuracy.md about regret, by source and for other networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpuplan.catalog.text.quantity import format_seconds

from ..tables import DASH, percent, row_of
from .regret import (
    FEWEST_SETUPS,
    MEAN_TARGET,
    SHORT_LIST_TARGET,
    WORST_TARGET,
    SourceRegret,
    Sweep,
    Tried,
    regret_by_source,
)

INTRODUCTION = """\
## Regret: choosing by the predictions

What it costs to follow the advice. A sweep is what one source measured of one model, global batch,
machine, precision and software in at least {fewest} setups: layout, micro-batch, recompute.
*Regret* is the measured time of the setup that is predicted to be fastest ÷ the fastest measured
time − 1, every prediction out of fold (a). *Best of three* is that of somebody who tries the three
setups predicted to be fastest, in sweeps of more than three; *at random* that of somebody who takes
any. Setups that ran are ranked by time alone, whatever memory is predicted."""
ODD_SETUPS = """\
Where vtrain-single's regret comes from. In 36 of its 136 sweeps the fastest setup is one of two:
hidden size 2,048 on 4 tensor ranks with a micro-batch of 2, or 1,024 on 2 with 4. They hold 94 % of
its regret and are predicted 37 and 26 % too slow; without them the mean is 0.2 %, the worst 5.1 %
and the best of three 0.0 %. In both, twice the micro-batch in as many micro-batches took *less*
time (0.96 and 0.95 of it, in 84 pairs of runs), though every kernel has as much work or more; 1.15
and 1.24 times are predicted. The setups of half and twice their micro-batch are 3 % too fast to 14
% too slow. So no sum over kernels that take longer with more work puts these two first. With 8
tensor ranks twice the micro-batch took 0.83 of the time, in setups that nobody would choose.

Looked at and left out. Tensor-parallel collectives hidden under the host's launches where those set
the pace, as the device waits for them and not the host (expected: host-bound setups with tensor
ranks a tenth faster); with 60 or 100 us of the host for each, and with a sharper change-over (power
8). In sample the best of three falls from 1.0 to 0.4 to 0.8 %, but the mean regret goes from 3.2 to
between 3.2 and 3.9 %, the worst from 23 to between 24 and 28, vtrain-single's error from 7.7 to
between 7.7 and 10.7 and bigscience-tr11's from 6.8 to between 7.5 and 10.3. No other source moves
by more than 0.2 points.

These 1,440 steps were not measured one by one, as was found on 2026-11-27. Without data parallelism
each is (g + p - 1) a L / p + c g + b L + d, to the last digit of the source's file (residuals of
1e-14), for L layers in p stages and g micro-batches, with one time a of a layer for a hidden size,
tensor ranks and a micro-batch: the same whatever p, g and L. The source publishes a simulator that
adds up profiled layers. So the file holds 32 times of a layer, of which two decide what comes first
in those 36 sweeps: what no mechanism explains is one odd number each. And that a step is the sum of
its parts, and how long a pipeline waits, is not shown by these runs."""
ODD_SOURCE = "vtrain-single"
VERDICTS = {True: "yes", False: "**no**", None: ""}


def regret_part(
    sweeps: Sequence[Sweep], on_networks: Mapping[float, Sequence[Sweep]] | None = None
) -> str:
    """Return the regrets of the sweeps, held out by configuration, beside their targets.

    Args:
        sweeps: all sweeps; without one there is nothing to say.
        on_networks: those on several nodes, predicted for multiples of the rate between the nodes.
    """
    if not sweeps:
        return ""
    rows = regret_by_source(sweeps)
    parts = [INTRODUCTION.format(fewest=FEWEST_SETUPS), _targets(rows), _table(rows)]
    parts += ["The worst sweep of each source:", _worst_table(rows)]
    if any(row.source == ODD_SOURCE for row in rows):
        parts.append(ODD_SETUPS)
    if on_networks and on_networks.get(1.0):
        parts += [_network_part(on_networks)]
    return "\n\n".join(parts)


def _judged(row: SourceRegret) -> dict[str, tuple[float | None, float]]:
    """Return each regret of a source with its target."""
    return {
        "mean": (row.mean, MEAN_TARGET),
        "worst": (row.worst.regret(), WORST_TARGET),
        "best of three": (row.short_list_mean, SHORT_LIST_TARGET),
    }


def _met(regret: float | None, target: float) -> bool | None:
    return None if regret is None else regret <= target


def _targets(rows: Sequence[SourceRegret]) -> str:
    """Return what every source is meant to reach, and which do not."""
    said = []
    for name, (_, target) in _judged(rows[0]).items():
        missing = [row.source for row in rows if _met(*_judged(row)[name]) is False]
        verdict = f"missed by {' and '.join(missing)}" if missing else "met"
        said.append(f"{name} at most {percent(target, 0)} ({verdict})")
    return f"Targets, for every source: {'; '.join(said)}."


def _table(rows: Sequence[SourceRegret]) -> str:
    headings = ["source", "sweeps"]
    for name in _judged(rows[0]):
        headings += [name, "met"]
    lines = [row_of((*headings, "at random")), row_of(("---", *["--:"] * len(headings)))]
    for row in rows:
        cells = [row.source, str(row.n)]
        for regret, target in _judged(row).values():
            cells += [percent(regret), VERDICTS[_met(regret, target)]]
        lines.append(row_of((*cells, percent(row.at_random))))
    return "\n".join(lines)


def _worst_table(rows: Sequence[SourceRegret]) -> str:
    lines = [row_of(("sweep", "setups", "chosen", "fastest measured", "regret"))]
    lines.append(row_of(("---", "--:", "---", "---", "--:")))
    for row in rows:
        sweep = row.worst
        regret = sweep.regret()
        chosen, fastest = sweep.short_list(1)[0], sweep.fastest
        cells = [f"{row.source}: {sweep.question}", str(len(sweep.tried)), _told(chosen)]
        cells += [_told(fastest) if regret else DASH, percent(regret)]
        lines.append(row_of(cells))
    return "\n".join(lines)


def _told(one: Tried) -> str:
    times = format_seconds(one.measured_s), format_seconds(one.predicted_s)
    return f"{one.name} ({one.id}): {times[0]}, predicted {times[1]}"


def _network_part(on_networks: Mapping[float, Sequence[Sweep]]) -> str:
    """Return how the choices in sweeps on several nodes move with the rate that is assumed."""
    by_multiple = {
        multiple: {row.source: row for row in regret_by_source(sweeps)}
        for multiple, sweeps in on_networks.items()
    }
    lines = [row_of(("source", "sweeps", *(f"× {multiple:g}" for multiple in by_multiple)))]
    lines.append(row_of(("---", *["--:"] * (1 + len(by_multiple)))))
    for source, row in by_multiple[1.0].items():
        means = (percent(rows[source].mean) for rows in by_multiple.values())
        lines.append(row_of((source, str(row.n), *means)))
    stated = on_networks[1.0]
    changes = " and ".join(
        f"{_changed(sweeps, stated)} at × {multiple:g}"
        for multiple, sweeps in on_networks.items()
        if multiple != 1
    )
    explained = (
        "Mean regret in the sweeps on several nodes, where predictions take this multiple of the"
        f" rate between nodes. Choices that change, of {len(stated)}: {changes}."
    )
    return "\n".join([explained, "", *lines])


def _changed(sweeps: Sequence[Sweep], others: Sequence[Sweep]) -> int:
    """Return in how many sweeps another setup is chosen."""
    pairs = zip(sweeps, others, strict=True)
    return sum(one.short_list(1)[0].id != other.short_list(1)[0].id for one, other in pairs)
