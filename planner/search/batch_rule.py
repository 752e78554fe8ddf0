"""The global batch of a question: as it was given, else that of published runs of such models.

The default of `make_batch` is a micro-batch and says nothing about the global batch.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from math import prod
from typing import Any

from ...catalog.errors import UsageError
from ...profiles.compared import knows_growth
from ...profiles.profile import Affine, Profile
from ..plan.answer.asked import AskedBatch
from ..plan.question import Work

IMAGE_DIMENSIONS = 3
"""Of one sample: channels, height, width."""
SERIES_DIMENSIONS = 2
"""Of one sample of an RNN: steps, values of a step."""
FEWEST_STEPS = 500
"""A batch that the rule chooses leaves at least so many steps; below, a schedule of the learning
rate has no room."""
FEW_STEPS = 200
"""Below so many steps of a batch that was given, there is a warning."""
NEAR = 0.05
"""How far the samples may be from tokens ÷ tokens per sample: published batches of "0.5M tokens"
are powers of two, such as 524,288."""
SQUARE_FROM_SAMPLES = 1.15
"""Samples at which the line of a size crosses 0 from which it is that of a square. That of the
larger half of a batch crosses at 1."""
LARGE_POSITIONS = 400 * 400
"""Pixels or voxels of a sample from which it is no image to classify: those have up to 384 a side;
detection and segmentation take 512 a side and more, volumes and video 64 voxels a side."""
RGB = 3
LARGEST_ROW_BYTES = 16 * 1024
"""A sample of a table is not larger; an image or a text is."""
LOOKED_UP = ("int64", "int32")
"""What is looked up in an embedding: tokens, and the columns of a table that hold lists."""

NEAR_TRACED = (
    "; what it computes grows with the square of the micro-batch, and is right only near the traced"
    " sizes"
)


@dataclass(frozen=True, kw_only=True)
class _Rule:
    samples: float
    words: str
    source: str


def global_batch_of(
    profile: Profile, work: Work, samples: float | None, *, odd: int = 1
) -> AskedBatch:
    """Return the global batch that all plans of a question have.

    Args:
        profile: the model.
        work: with the batch that was given, if one was.
        samples: how many the work is, where that does not depend on the batch; None: not known.
        odd: by what the batch of a rule is to divide, beside powers of two: nodes that were asked
            for, each of which takes as many samples.

    Raises:
        UsageError: the batch is given in tokens, and the file does not say how many a sample has.
    """
    per_sample = profile.tokens_per_sample
    given = work.global_batch
    if work.global_batch_tokens is not None:
        given = _samples_near(work.global_batch_tokens, per_sample)
    if given is not None:
        return AskedBatch(samples=given, tokens=_tokens(given, per_sample), source="option")
    rule = _rule(profile, work, samples)
    odd = odd if odd <= rule.samples else 1
    size = odd * _power_of_two(rule.samples / odd)
    most = size if samples is None else max(1, int(samples // FEWEST_STEPS))
    words = rule.words + (f", divisible by {odd}" if odd > 1 else "")
    if size > most:
        odd = odd if odd <= most else 1
        size = odd * 2 ** ((most // odd).bit_length() - 1)
        less = f"less to leave {FEWEST_STEPS} steps" if size > 1 else "less, of so few samples"
        words = f"{rule.words}, {less}"
    return AskedBatch(
        samples=size,
        tokens=_tokens(size, per_sample),
        source="rule",
        rule=words,
        rule_source=rule.source,
    )


def _samples_near(tokens: float, per_sample: float | None) -> int:
    """Return the samples that make about so many tokens and divide among ranks most evenly."""
    if per_sample is None:
        raise UsageError(
            "The global batch was given in tokens, but the model file does not say how many a"
            " sample has.",
            fix="set TOKENS_PER_SAMPLE in the file, or give --global-batch in samples.",
        )
    return evenly_near(tokens / per_sample)


def evenly_near(exact: float) -> int:
    """Return the number within `NEAR` of another that divides by the largest power of two.

    >>> evenly_near(244.1), evenly_near(21.3)
    (256, 22)
    """
    for exponent in range(max(0, int(exact).bit_length()), -1, -1):
        step = 2**exponent
        near = max(1, round(exact / step)) * step
        if abs(near - exact) <= NEAR * exact:
            return near
    return max(1, round(exact))


def _fine_tunes(profile: Profile, work: Work, samples: float | None) -> bool:
    """Return whether trained weights are trained a little further: on fewer tokens than they are.

    Those of instructions are a hundredth to a fifth of the parameters, models are first trained on
    20 and more for each (Hoffmann et al. 2022, arXiv:2203.15556), and what goes on with it, as Code
    Llama does, on more than one.
    """
    per_sample = profile.tokens_per_sample
    if not work.from_weights or samples is None or per_sample is None:
        return False
    return samples * per_sample < profile.parameters


def _labels_texts(profile: Profile) -> bool:
    """Return whether a sample is a text and one label, or a few: what a classifier learns from."""
    shapes = [one.sample_shape for one in profile.batch_tensors]
    return profile.tokens_per_sample is not None and () in shapes and max(map(len, shapes)) == 1


def _rule(profile: Profile, work: Work, amount: float | None) -> _Rule:
    table = _table()
    size = profile.parameters
    if _trains_adapters(profile) and _reads_tokens(profile):
        return _Rule(**_samples(table["adapters"], "of adapters"))
    if profile.mixes_samples or compares_samples(profile):
        return _Rule(**_samples(table["pairs"], "of a contrastive loss"))
    if work.from_weights and _labels_texts(profile):
        return _Rule(**_samples(table["labelled"], "of labelled texts"))
    if profile.tokens_per_sample is not None:
        row = next(row for row in table["language"] if size <= row["up_to_parameters"])
        tuned = table["fine_tune"]
        # Long documents are fewer: no fine-tune takes more tokens a step than the first training.
        most_tokens = row["tokens"] * (1 + NEAR)
        fine_tunes = _fine_tunes(profile, work, amount)
        if fine_tunes and tuned["samples"] * profile.tokens_per_sample <= most_tokens:
            return _Rule(**_samples(tuned, "of a fine-tune"))
        return _Rule(
            samples=row["tokens"] / profile.tokens_per_sample,
            words=f"{row['tokens'] / 1e6:g}M tokens at {size / 1e9:.2g}B parameters",
            source=row["source"],
        )
    kinds = {k.kind for s in profile.steps[0].segments for k in s.kernels}
    # Models of speech have convolutions before an RNN, or over samples of one long dimension.
    if "convolution" in kinds and "rnn" not in kinds and _may_be_images(profile):
        if _positions(profile) >= LARGE_POSITIONS and _may_be_volumes(profile):
            return _Rule(**_samples(table["volumes"], "of volumes"))
        if _are_labelled_videos(profile):
            return _Rule(**_samples(table["videos"], "of videos"))
        if _positions(profile) >= LARGE_POSITIONS:
            return _Rule(**_samples(table["large"], "of large images"))
        if "attention" in kinds and not work.from_weights and _classifies(profile):
            return _Rule(**_samples(table["vision_transformers"], "of a vision transformer"))
        return _Rule(**_samples(table["images"], "of images"))
    if "rnn" in kinds and "convolution" not in kinds:
        if _are_series(profile):
            return _Rule(**_samples(table["series"], "of time series"))
        return _Rule(**_samples(table["sequences"], "of an RNN"))
    if _may_be_rows(profile):
        return _Rule(**_samples(table["rows"], "of table rows"))
    return _Rule(**_samples(table["others"], ""))


def contrastive_notes(profile: Profile) -> Iterator[str]:
    """Yield what accumulation and several ranks do not give a contrastive loss.

    Nothing where its samples were seen to mix: a warning says it then (`across_samples.py`).
    """
    if compares_samples(profile) and not profile.mixes_samples:
        doubt = "" if knows_growth(profile.steps[:1]) else NEAR_TRACED
        yield (
            "the loss compares the samples of one micro-batch with each other, so that accumulation"
            " adds no negatives, and other ranks do only where the file gathers their outputs:"
            f" give --micro-batch to fix how many there are{doubt}"
        )


def compares_samples(profile: Profile) -> bool:
    """Return whether a step compares every sample of a batch with every other: a contrastive loss.

    Its product of the samples with each other has rows and columns that grow with the batch, and
    no layer has: CLIP, SimCLR, towers of users and items with the rest of the batch as negatives.
    """
    segments = (segment for step in profile.steps[:1] for segment in step.segments)
    forward = [segment for segment in segments if segment.phase == "forward"]
    kernels = (k for segment in forward for k in segment.kernels if k.kind == "gemm")
    if any(k.dims["m"].grows and k.dims["n"].grows and not k.dims["batch"].grows for k in kernels):
        return True
    return measures_distances(profile)


def measures_distances(profile: Profile) -> bool:
    """Return whether the loss makes a tensor of the pairs of a batch without a matrix product."""
    segments = (segment for step in profile.steps[:1] for segment in step.segments)
    loss = (s for s in segments if s.phase == "forward" and s.block is None)
    return any(_grows_with_square(k.dims.get("elements")) for s in loss for k in s.kernels)


def _grows_with_square(size: Affine | None) -> bool:
    """Return whether a size grows with the square of the batch, as a matrix of distances does.

    Where no larger batch could be traced, the line through B² at two sizes, 2 and 3 samples at
    least, is below 0 at 1.2 samples or more.
    """
    if size is not None and size.compares_samples:
        return True
    if size is None or size.per_sample <= 0:
        return False
    return size.base <= -SQUARE_FROM_SAMPLES * size.per_sample


def _samples(row: dict[str, Any], what: str) -> dict[str, Any]:
    words = f"{row['samples']:,} samples {what}".rstrip()
    return {"samples": row["samples"], "words": words, "source": row["source"]}


def _may_be_images(profile: Profile) -> bool:
    """Return whether a tensor has channels, height and width; True if no tensor is known."""
    shapes = [one.sample_shape for one in profile.batch_tensors]
    return not shapes or max(map(len, shapes)) >= IMAGE_DIMENSIONS


def _may_be_rows(profile: Profile) -> bool:
    """Return whether samples are small and flat: rows of a table, each with a number per column.

    Those of more dimensions (small images, clouds of points, windows of a series) have the batches
    of others. Columns of several categories are lists of integers.
    """
    small = profile.batch_bytes.per_sample <= LARGEST_ROW_BYTES
    flat = all(len(t.sample_shape) <= 1 or t.dtype in LOOKED_UP for t in profile.batch_tensors)
    return small and flat and not profile.blocks


def _are_series(profile: Profile) -> bool:
    """Return whether the largest tensor of a sample is of steps with the values of each."""
    shapes = [one.sample_shape for one in profile.batch_tensors]
    return max(map(len, shapes), default=0) == SERIES_DIMENSIONS


def _may_be_volumes(profile: Profile) -> bool:
    """Return whether samples are volumes: three sides beside the channels, and no video.

    A video has three channels. A volume has them too where its target is one of all its voxels.
    """
    shapes = [one.sample_shape for one in profile.batch_tensors]
    grids = [shape for shape in shapes if len(shape) > IMAGE_DIMENSIONS]
    for shape in grids:
        sides = shape[1:] if shape[0] <= shape[-1] else shape[:-1]
        if min(shape[0], shape[-1]) != RGB and RGB not in shape[:2]:
            return True
        if any(other[-len(sides) :] == sides for other in shapes if other is not shape):
            return True
    return False


def _are_labelled_videos(profile: Profile) -> bool:
    """Return whether samples are large clips of colour frames with one label each."""
    shapes = [one.sample_shape for one in profile.batch_tensors]
    clips = [shape for shape in shapes if len(shape) > IMAGE_DIMENSIONS]
    colour = [shape for shape in clips if RGB in (*shape[:2], shape[-1])]
    return () in shapes and any(prod(shape) // RGB >= LARGE_POSITIONS for shape in colour)


def _classifies(profile: Profile) -> bool:
    """Return whether a sample has one label, and the last layer of a forward pass one row of it.

    That of a diffusion model, whose batch looks the same, is a convolution or has a row for each
    patch.
    """
    if () not in [one.sample_shape for one in profile.batch_tensors]:
        return False
    step = profile.steps[0]
    forward = [s for i in step.schedule if (s := step.segments[i]).phase == "forward"]
    layers = [k for s in forward for k in s.kernels if k.kind in ("gemm", "convolution")]
    return bool(layers) and layers[-1].kind == "gemm" and layers[-1].dims["m"] == Affine(0, 1)


def _positions(profile: Profile) -> int:
    """Return the pixels or voxels of a sample, of the largest tensor that has some."""
    shapes = [one.sample_shape for one in profile.batch_tensors]
    grids = [shape for shape in shapes if len(shape) >= IMAGE_DIMENSIONS]
    # The channels are the shortest side, first or last; tokens and labels have fewer dimensions.
    return max((prod(shape) // min(shape[0], shape[-1]) for shape in grids), default=0)


def _trains_adapters(profile: Profile) -> bool:
    return profile.is_mostly_frozen


def _reads_tokens(profile: Profile) -> bool:
    """Return whether the file counts tokens, or its samples are sequences of integers."""
    return profile.tokens_per_sample is not None or any(
        one.dtype in LOOKED_UP and len(one.sample_shape) == 1 for one in profile.batch_tensors
    )


def _tokens(samples: int, per_sample: float | None) -> float | None:
    return None if per_sample is None else samples * per_sample


def _power_of_two(samples: float) -> int:
    """Return the power of two that is nearest by ratio, one at least.

    >>> _power_of_two(244.1), _power_of_two(0.3)
    (256, 1)
    """
    low = 2 ** max(0, int(samples).bit_length() - 1)
    return low if samples**2 <= 2 * low**2 else 2 * low


@cache
def _table() -> dict[str, Any]:
    text = (files("gpuplan.planner") / "data/batch_sizes.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)
