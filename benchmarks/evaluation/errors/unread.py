"""What to expect of runs whose software nobody looked into.

Published records as they were first written down, and runs that no constant has been near.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from gpuplan.api.validation import TimedRun
from gpuplan.planner.predict.interval import step_interval
from gpuplan.planner.validation.errors import Observation, summarise

from ..groups import LARGE_ENOUGH
from ..published_records import PUBLISHED
from ..tables import factor, percent, row_of, signed

UNSEEN = PUBLISHED / "unseen" / "records.jsonl"
"""Runs from sources that nothing is fitted to: tests/published/unseen/README.md."""
OTHER_KINDS = PUBLISHED / "unseen" / "other_kinds.jsonl"
"""The same, most of kinds of models and software that the fitted records lack."""
USUAL_JOBS = PUBLISHED / "unseen" / "usual_jobs.jsonl"
"""The same, of the jobs that devices are rented for today, gathered later than both."""
MORE_JOBS = PUBLISHED / "unseen" / "more_jobs.jsonl"
"""The same, of more such jobs, gathered last: most ran on devices and software of 2018 to 2023."""

PART = """\
## Runs that nobody looked into

The records of most sources above were compared with the configurations of the programs that ran,
and corrected. Whoever plans a run knows less of it. Five sets show what that costs.

**As first written.** The same records as they were written down from the pages of their sources
alone (tests/published/first_reading.jsonl), each without its source, with the sources that no fit
explains: the mean over the {first_groups} sources of {large} runs and more is {first_mape}, and
{first_covered} lie in the 80 % interval.

**Unseen.** {rows} runs of {groups} sources, gathered on 2026-11-29
([tests/published/unseen](../tests/published/unseen/README.md)) after the constants were fitted.
Nothing is fitted to them. As the code stood they were 17.6 % off in the mean over sources, and 58 %
of them in the interval; now {mape} (median of the runs {median}) and {covered}.

**Unseen, of other kinds.** {other_rows} runs of {other_groups} sources, gathered on the same day,
most of kinds of models and software that neither the fitted records nor the set above have:
recurrent networks, speech, diffusion transformers, encoders with decoders, ring attention, XLA on
GPUs with other programs. Nothing is fitted to them either. As the code stood they were 21.9 % off
in the mean over sources, and 55 % of them in the interval; now {other_mape} (median of the runs
{other_median}) and {other_covered}.

**Usual jobs.** {usual_rows} runs of {usual_groups} more sources, gathered on 2026-11-30, after all
of that was built: small and large language models, fine-tuning, vision, diffusion. As the code
stood they were 19.5 % off in the mean over sources, 11.1 % in the median, and 87 % of the runs (of
the sources, 80 %) lay in the interval, which so held on a new set for the first time.
Now {usual_mape} (median {usual_median}) and {usual_covered}.

**More jobs.** {more_rows} runs of {more_groups} more sources, gathered later on 2026-11-30: BERT,
T5, GPT-2, vision transformers, detection, speech, adapters of SDXL, most on A100, V100 and GeForce
cards with software of 2019 to 2023. As the code stood they were 26.5 % off in the mean over
sources, 9.5 % in the median, and 76 % of the runs (of the sources, 51 %) lay in the interval. BERT,
GPT-2 and T5 of the two largest sources were 5 and 7 % off, six sources of one or two runs 24 to
68 %, all of them too fast. 27 peaks of memory of five of the sources were 8.4 % off (median 4.6 %),
89 % of them in the interval. Now {more_mape} (median {more_median}) and {more_covered}.

Of the unseen together {all_covered} lie in the interval. What they say apart: where model and
software are of a kind that was fitted, they are as far off as the rest of this page says (MaxText
on v5p and Google's recipes for GPUs 3 %, GLM-130B 2, MLPerf's Llama-3.1 8 and 9, torch's FSDP under
lightning-thunder 10); where either is new, 20 to 40, and most of them take longer than is
predicted.

The interval of what nobody checked (constant `doubt.unchecked`; every plan and every record without
the feature `checked-software` has it) is fitted to the fitted records alone, so that on the mean of
two sets 80 % lie inside: the first readings above, of which today's code has learned, and what the
code of "The day before" said of the 11 sources of 8 runs and more of which it had no record. It was
fitted to the first readings alone until the other kinds showed 55 % inside: to what it is fitted
was chosen after they were looked at, and how wide it became was not.

What changed after they were looked at, with no constant fitted to them:

- Depthwise convolutions in fp32 and tf32 were priced as products of one column (EfficientNet was 80
  % off).
- Few output channels of square filters were padded to the largest tile: with a smaller one and no
  constant moved, DenseNet's runs on an RTX-3090 go from 22 to 27 % too slow to 4 to 10, Lambda's
  error within folds from 8.5 to 8.0 %, and nnU-Net's in two dimensions here from 16 to 5. In three
  it would go from 24 to 14, but our own on an H100 from 8 to 21, so there nothing changed.
- Hosts of a TPU v3 are one torus, as those of v4 and newer were already: mesh-transformer-jax from
  39 to 10 %.
- A depthwise filter of one side has a rate of its own, from kernels that others timed on an RTX
  3090 and a GTX 1070 (pytorch/pytorch#75747): QuartzNet from 63 to 30 %.
- The gates of a recurrent layer's step are a kernel that waits for its product, as cuDNN runs them;
  no constant: GNMT from 24 to 20 %, our own LSTM on an H100 from 43 to 38.
- Kernels that hardly any published run has (recurrent layers, filters over sequences and volumes or
  dilated ones, gathers) are doubted by their share of the step (`doubt.new_kernels`). Its size is
  an estimate from our own steps of an LSTM, DLRM and a GNN, which are 36 to 45 % off.

- Attention with a mask was priced as the flash kernel. It has the level of torch's memory-efficient
  kernel now, from kernels that others timed on an A100 (NVIDIA/cutlass#992, xformers#587 and #712,
  pytorch#121845), and reads its mask. universal-llm-trainer's eight records were read again: its
  test replaces the tokens of batches and leaves their padding's mask, as the records say since.
  On H100 and A100 they go from 38 % too fast to 5 off, on an RTX PRO 6000 from 54 to 25. Of others'
  steps a Mistral with LoRA took 1.31 and 1.61 times as long with a mask at 4,096 and 8,192 tokens
  (transformers#30461); 1.45 and 1.74 are predicted.
- Memory-bound kernels read from the caches of cards since Ada what was just written: PEFT's small
  steps on an L40S from 17 % too slow to 7.
- H800s whose network is not stated had 100 Gbit/s each; they have that of H100s: XTuner's mixtures
  from 41 % too slow to 24.
- The two runs of a GPT-2 on two RTX-4090 state that the model computes its loss and is compiled
  whole, so that the loss is one kernel: 19.0 and 20.1 GiB for 18.4 and 20.1, where 31 and 30 were
  predicted.
- Of the usual jobs, a loss that a compiler sees moves 16-bit logits three times, and no fp32 copy
  of them or of their gradients (`profiles/passes/loss_kernel.py`): one GPT-2 on 19 kinds of devices
  was 14 % too slow and is 5. Its model returns the logits beside the loss, so that their gradient
  is made of zeros too: its memory was 7 to 13 % too low and is 1 to 5 too high.
- Of the usual jobs, SmolLM3's attention takes a mask, as transformers of its time gave it one
  wherever nothing was cached (transformers#41856): its records say so since, and its steps go from
  40 % too fast to 15 too slow.
- Of more jobs, an NVLink bridge joins two cards: eight that have one each talk over their slots, as
  do the four A100 in two pairs that Azure sells (`planner/hardware/bridges.py`). Two records were
  read again: SDXL's adapters were stepped by Adafactor, as its command says (from 68 % too fast to
  52), and nanoGPT's optimizer was not fused on that day.

Of those models, and of recurrent ones, these rows are no evidence. Tried and left out: convolutions
of 3 x 3 in fp32 at 1.5 times the rate of their products, strided ones at half of it, as DeepBench's
kernels show on four devices (Winograd's transforms): VGG-16 in fp32 goes from 20 % too slow to 18
too fast, SSD from 21 to 9, PSPNet from 37 to 40.

{table}

Where they are worst. Dilated filters (WaveGlow, PSPNet) and those over sequences (HiFi-GAN, Jasper,
WaveGlow) have slower kernels in cuDNN than those of images, as which they are priced. Recurrent
layers (GNMT) take longer than their products and gates do one after another. T5X and ViT of
JAX-Toolbox are taken to reduce all gradients after the backward pass, or to split layers, as Pax
does. DeepSpeed's autotuning runs transformers' trainer on small batches, the temporal fusion
transformer runs under TorchScript, FLUX in MXFP8 has more between its products than a fused block.
Mixtures of experts on H800 under Pai-Megatron-Patch that recompute whole layers exchange faster
than is predicted. Megatron-LLaMA and Swiss AI's
run on fabrics of their own (4 x 200 Gbit/s RoCE a node, Slingshot) with optimizers whose traffic is
exposed more than is predicted. Transformer Engine's layers in fp8 outside Megatron (te-issue-72)
fuse what eager torch does not. Of nnU-Net in DeepLearningExamples nvFuser merges the norms, which
are priced as torch's own. Of the usual jobs, Chinese-CLIP decodes and changes its images meanwhile,
Qwen3-0.6B takes longer than is predicted (its attention is not stated), DiT in TF32 takes twice as
long, and an MI300X with a small GPT-2 in eager torch half as long as the level of AMD's devices
says. Of more jobs, Swin-T under torch 1.8 takes 2.6 times as long on an A100, longer than under
torch 1.12 on an RTX-3090, which is 7 % off. Two cards whose traffic passes through the host, over
eight lanes, reduce 8 GB a second, and a record cannot say that their bridge was switched off.
nanoGPT under a nightly of torch 2.0, wav2vec 2.0 of 2020, an MAE on eight A6000 and SDXL's adapters
on Windows take 1.4 to 2.1 times as long."""


@dataclass(frozen=True)
class Reading:
    """A run without its source, as its record was first written."""

    source: str
    error: float
    covered: bool


def readings(runs: Iterable[TimedRun]) -> list[Reading]:
    """Return how far runs are from their predictions without their source."""
    found: list[Reading] = []
    for run in runs:
        unseen = run.held_out("source")
        step = step_interval(unseen.seconds(), unseen.doubts(), unseen.cache.constants)
        found.append(
            Reading(
                source=run.source,
                error=step.value / run.measured_s - 1,
                covered=step.low <= run.measured_s <= step.high,
            )
        )
    return found


def unread_part(
    first: Sequence[Reading],
    unseen: Sequence[Observation],
    others: Sequence[Observation],
    usual: Sequence[Observation],
    more: Sequence[Observation],
) -> str:
    """Return the part of docs/accuracy.md; empty where nothing was read so.

    Args:
        first: the published records as first written.
        unseen: the runs that nothing is fitted to.
        others: those of other kinds of models and software.
        usual: those of usual jobs.
        more: those of more such jobs.
    """
    if not (first and unseen and others and usual and more):
        return ""
    sources = _by_source(first)
    return PART.format(
        first_groups=len(sources),
        large=LARGE_ENOUGH,
        first_mape=percent(fmean(fmean(abs(r.error) for r in one) for one in sources.values())),
        first_covered=percent(covered_readings(first), 0),
        **_said(unseen),
        **{f"other_{name}": text for name, text in _said(others).items()},
        **{f"usual_{name}": text for name, text in _said(usual).items()},
        **{f"more_{name}": text for name, text in _said(more).items()},
        all_covered=percent(covered_unseen([*unseen, *others, *usual, *more]), 0),
        table="\n".join(_table([*unseen, *others, *usual, *more])),
    )


def _said(seen: Sequence[Observation]) -> dict[str, str]:
    errors = [one for run in seen if (one := step_error(run)) is not None]
    return {
        "rows": f"{len(errors):,}",
        "groups": str(len({run.source_group for run in seen if step_error(run) is not None})),
        "mape": percent(mean_unseen_error(seen)),
        "median": percent(median(abs(one) for one in errors)),
        "covered": percent(covered_unseen(seen), 0),
    }


def _table(seen: Sequence[Observation]) -> list[str]:
    shown = ("source", "n", "MAPE", "bias", "in 80 %", "width")
    lines = [row_of(shown), row_of(["---", *["--:"] * (len(shown) - 1)])]
    for row in summarise(seen, "source_group", "step_time_s"):
        cells = [row.group, str(row.n), percent(row.mape), signed(row.bias)]
        lines.append(row_of([*cells, percent(row.covered, 0), factor(row.width)]))
    return lines


def mean_unseen_error(unseen: Sequence[Observation]) -> float:
    """Return the mean absolute relative error of step times, sources weighing alike."""
    return fmean(row.mape for row in summarise(unseen, "source_group", "step_time_s"))


def covered_unseen(unseen: Sequence[Observation]) -> float:
    """Return the share of these runs that lie in the 80 % interval."""
    timed = [seen for seen in unseen if step_error(seen) is not None]
    return fmean(_is_covered(seen) for seen in timed)


def step_error(seen: Observation) -> float | None:
    """Return predicted ÷ measured − 1 of a step; None where it was not timed or not predicted."""
    measured, predicted = seen.measured_step_time_s, seen.predicted_step_time_s
    return predicted.value / measured - 1 if measured and predicted else None


def _is_covered(seen: Observation) -> bool:
    measured, predicted = seen.measured_step_time_s, seen.predicted_step_time_s
    assert measured is not None and predicted is not None
    return predicted.low <= measured <= predicted.high


def covered_readings(found: Sequence[Reading]) -> float:
    """Return the mean share inside the interval over sources of enough runs."""
    return fmean(fmean(one.covered for one in rows) for rows in _by_source(found).values())


def _by_source(found: Sequence[Reading]) -> dict[str, list[Reading]]:
    sources: dict[str, list[Reading]] = defaultdict(list)
    for one in found:
        sources[one.source].append(one)
    return {name: rows for name, rows in sources.items() if len(rows) >= LARGE_ENOUGH}
