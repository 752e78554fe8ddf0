"""Whole trainings that were gathered before they were predicted: hours paid, hours expected."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean, median

from .programmes import Programme, median_ratio
from .published_records import PUBLISHED
from .tables import percent, row_of

UNSEEN_PROGRAMMES = PUBLISHED / "unseen" / "programmes.jsonl"
UNSEEN_JOBS = PUBLISHED / "unseen" / "jobs.jsonl"
"""tests/published/unseen/README.md says where both are from."""

PART = """\
## Whole programmes that nobody had predicted

{n} more trainings of {groups} groups, gathered on 2026-11-30 from model cards, papers and logs
before any was predicted. Nothing is fitted to them, and nothing was changed after they were seen.
What a source does not say of layout, micro-batch and recompute was written down as its software
would run, before the prediction.

The median of expected ÷ published is {ratio}; of the groups' medians it is {group_ratio}. Half of
the trainings lie between {low} and {high}, {inside} of the published figures in the 80 % interval
(groups weighing alike, {group_inside}): too few. The interval knows of setups that a source does
not state, and not of trainings that ran far from how their devices are used elsewhere.

Language models whose setup is known are close: Pythia's eight within a fifth, GPT-NeoX-20B and
OPT-175B within 12 %, StarCoder, SantaCoder, MPT-7B-8K, Meditron. Far more than is expected was paid
by trainings that ran well under what their devices do elsewhere (BioMedLM and SEA-LION on
A100-40GB, Lucie and CroissantLLM on Jean Zay, ESM-2 and RoBERTa under fairseq on V100), by all six
on images, which wait for them, change them, and evaluate (DeiT, ResNet-50, DINO: plan with
`measure`), and by Llama 3, whose hours hold more than the training. Far less than is expected was
paid where the layout that was written down costs more than theirs (LLaMA-1's 33B and 65B by tensor
ranks, Falcon-180B with eight stages and no interleaving, DeepSeek-67B, Phi-4), and by MobileLLM,
whose days would need more than half of an A100's peak from eager transformers.

{table}
"""

JOBS = """\
## Small jobs that nobody had predicted

{n} fine-tunings and small trainings of {groups} sources whose hours are published, gathered on
2026-11-30 before any was predicted: of 1 minute to 9 days on 1 to 64 accelerators. Nothing is
fitted to them. Their hours begin with the training, so the start of machines is not counted here;
how they read their data, evaluate and save is mostly not stated.

The median of expected ÷ published is {ratio}; of the sources' medians it is {group_ratio}. Half of
the jobs lie between {low} and {high}, {inside} of the published figures in the 80 % interval
(sources weighing alike, {group_inside}): far too few, for what is predicted are the steps, and
these hours hold more.

{say}

One mistake was mended after they were predicted: FLAN-T5 XXL stood in the sizes of XL.

{table}
"""
SAY = """\
Within 30 % lie BERT on GLUE and XNLI on one GPU, YOLOv5 in five sizes, two NeRFs, a ResNet-9 on
CIFAR-10, and FLAN-T5 with 8 samples or more on a GPU. Longer took, half as long again to five
times: FLAN-T5 with one sample on a GPU or with states in host memory, Whisper, whose evaluations
write texts, images of which several crops or changes are made (SwAV, Barlow Twins, Swin, ConvMixer,
a ViT), GLUE under JAX on a TPU v3, jobs of minutes on four GPUs, clips of speech, and FSDP
fine-tuning of a 15B and a 70B under transformers. Which part of that are the steps is known of
none. Shorter took EDM's networks in fp32 on V100 (a quarter to a third), and BERT on an L4, whose
attention our model file writes out."""


def unseen_programmes_part(found: Sequence[Programme]) -> str:
    """Return the part of docs/accuracy.md; empty without programmes."""
    return _part(PART, found)


def unseen_jobs_part(found: Sequence[Programme]) -> str:
    """Return the part of docs/accuracy.md on small jobs; empty without any."""
    return _part(JOBS, found)


def _part(text: str, found: Sequence[Programme]) -> str:
    if not found:
        return ""
    groups = _by_group(found)
    ratios = sorted(one.ratio for one in found)
    return text.format(
        say=SAY,
        n=len(found),
        groups=len(groups),
        ratio=f"{median_ratio(found):.2f}",
        group_ratio=f"{median(median_ratio(one) for one in groups):.2f}",
        low=f"{ratios[len(ratios) // 4]:.2f}",
        high=f"{ratios[-1 - len(ratios) // 4]:.2f}",
        inside=percent(fmean(one.is_inside for one in found), 0),
        group_inside=percent(inside(found), 0),
        table="\n".join(_table(found)),
    )


def inside(found: Sequence[Programme]) -> float:
    """Return the mean share of published figures in the 80 % interval, groups weighing alike."""
    return fmean(fmean(one.is_inside for one in group) for group in _by_group(found))


def _by_group(found: Sequence[Programme]) -> list[list[Programme]]:
    groups: dict[str, list[Programme]] = defaultdict(list)
    for one in found:
        groups[one.group].append(one)
    return list(groups.values())


def _hours(hours: float) -> str:
    return f"{hours:,.0f} h" if hours >= 100 else f"{hours:.3g} h"


def _table(found: Sequence[Programme]) -> list[str]:
    heads = ("programme", "accelerators", "published", "expected", "ratio", "in 80 %", "assumed")
    lines = [row_of(heads), row_of(("---", "--:", "--:", "--:", "--:", "--:", "---"))]
    for one in sorted(found, key=lambda one: abs(math.log(one.ratio))):
        lines.append(
            row_of(
                (
                    one.id,
                    f"{one.accelerators:,} × {one.accelerator}",  # noqa: RUF001
                    _hours(one.published_hours),
                    _hours(one.expected_hours),
                    f"{one.ratio:.2f}",
                    "yes" if one.is_inside else "no",
                    ", ".join(name.split(" (")[0] for name in one.assumed) or "nothing",
                )
            )
        )
    return lines
