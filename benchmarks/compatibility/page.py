"""docs/compatibility.md: what came out of tracing every listed model, by library."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import median

from .trials import Trial

MB = 10**6
GIGA = 10**9
HEAD = """# Compatibility

Which models of popular libraries gpuplan traces. `make compatibility` installs the libraries into
an environment of its own and traces every model below with `gpuplan profile`, each in processes of
its own with a limit of {limit_s:g} seconds. It writes this page and
[compatibility.jsonl](compatibility.jsonl).

**{traced} of {tried} models are traced ({share:.1%}), with {cpu_s:.1f} s of processor time (median)
and {longest_s:.0f} s at most, in {memory_mb:,.0f} MB of memory at most.** Made on {date} with
torch {torch} for CPUs and Python {python}, {workers} at a time on {cores} cores. The time is of the
whole command: Python, torch and the library are imported anew for every model, most of it.

A model is traced when one whole training step is, in fp32: forward, loss, backward and optimizer,
at the size of its architecture, without its weights. The files in `benchmarks/compatibility/models`
say so where a model has fewer layers.
Where a step depends on the values of a tensor, gpuplan names the line; what it then needs to know
was [stated](model-file.md#how-the-file-is-run) where this page says so, and else the model counts
as refused.

What a step holds is compared with real ones: for 15 models of transformers, made narrow, dropout of
attention and grouped queries among them, the allocated peak of a trace equals that of the same step
run on a CPU, to the byte (`tests/profiles/trace/test_library_peaks.py`).
"""


def page(trials: Sequence[Trial], **facts: object) -> str:
    """Return the page, as Markdown.

    Args:
        trials: What came out, in the order of the page.
        facts: What `HEAD` says of the machine and the day.
    """
    traced = [one for one in trials if one.traced]
    head = HEAD.format(
        traced=len(traced),
        tried=len(trials),
        share=len(traced) / len(trials),
        cpu_s=median(one.cpu_s for one in traced),
        longest_s=max(one.cpu_s for one in traced),
        memory_mb=max(one.peak_memory_bytes for one in traced) / MB,
        **facts,
    )
    refused = [one for one in trials if not one.traced]
    return "\n".join([head, *_summary(trials), *_refused(refused), *_every(trials)]) + "\n"


def _summary(trials: Iterable[Trial]) -> list[str]:
    lines = [
        "| library | version | traced | processor, median | longest | memory at most |",
        "|---|---|--:|--:|--:|--:|",
    ]
    for package, found in _by_package(trials).items():
        traced = [one for one in found if one.traced]
        row = f"| {package} | {found[0].version} | {len(traced)} of {len(found)} |"
        if traced:
            seconds = [one.cpu_s for one in traced]
            memory = max(one.peak_memory_bytes for one in traced) / MB
            row += f" {median(seconds):.1f} s | {max(seconds):.1f} s | {memory:,.0f} MB |"
        else:
            row += " | | |"
        lines.append(row)
    return [*lines, ""]


def _refused(trials: Sequence[Trial]) -> list[str]:
    lines = ["## Refused", "", "| model | what gpuplan says |", "|---|---|"]
    lines += [f"| {one.package} {one.name} | {_cell(one.message or '')} |" for one in trials]
    return [*lines, ""] if trials else []


def _every(trials: Iterable[Trial]) -> list[str]:
    lines: list[str] = []
    for package, found in _by_package(trials).items():
        lines += [f"## {package}", ""]
        lines.append("| model | parameters | GFLOP a sample | processor, s | memory, MB |")
        lines.append("|---|--:|--:|--:|--:|")
        lines += [_row(one) for one in found if one.traced]
        lines.append("")
        for one in found:
            if one.traced and one.options:
                lines += [f"{one.name} with `{' '.join(one.options)}`.", ""]
    return lines[:-1]


def _row(trial: Trial) -> str:
    parameters = "?" if trial.parameters is None else f"{trial.parameters:,}"
    flops = "?" if trial.flops_per_sample is None else _three_digits(trial.flops_per_sample / GIGA)
    memory = f"{trial.peak_memory_bytes / MB:,.0f}"
    return f"| {trial.name} | {parameters} | {flops} | {trial.cpu_s:.1f} | {memory} |"


def _three_digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _by_package(trials: Iterable[Trial]) -> dict[str, list[Trial]]:
    found: dict[str, list[Trial]] = defaultdict(list)
    for one in trials:
        found[one.package].append(one)
    return found


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
