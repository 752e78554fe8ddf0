"""Attention that takes a mask: what is_causal=True in its place would save."""

from collections.abc import Callable

import pytest

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.planner.advise.advise import AdviceOutcome, advise
from gpuplan.planner.advise.answer import Change
from gpuplan.planner.advise.today.masked_attention import takes_a_mask, with_causal_attention
from gpuplan.planner.plan.question import Choices, Machine, Question, Work
from gpuplan.profiles.profile import Affine, Kernel, Profile, Segment, StepTrace

CATALOGUE = load_catalogue()
TODAY = Question(
    work=Work(samples=1e7),
    machine=Machine(providers=("aws",), instances=("p4d.24xlarge",)),
    choices=Choices(micro_batches=(4,), grad_accums=(4,), precisions=("bf16-amp",)),
)


HEADS, LENGTH, WIDTH = 8, 4096, 64


def _attention(kernel: Kernel, *, backward: bool) -> Kernel:
    """Return attention of so many heads over so many positions that takes a mask."""
    dims = {"heads": HEADS, "kv_heads": HEADS, "seq_q": LENGTH, "seq_kv": LENGTH, "head_dim": WIDTH}
    products = 5 if backward else 2
    return kernel.model_copy(
        update={
            "kind": "attention",
            "op": f"_scaled_dot_product_efficient_attention{'_backward' * backward}",
            "dims": {"batch": Affine(0, 1), **{key: Affine(size) for key, size in dims.items()}},
            "dtype": "16bit",
            "flops": Affine(0, 2.0 * products * HEADS * LENGTH**2 * WIDTH),
            "backward": backward,
        }
    )


def _with_attention(step: StepTrace, **changes: object) -> StepTrace:
    def attends(segment: Segment) -> Segment:
        if segment.block is None or segment.phase not in ("forward", "backward"):
            return segment
        first, *others = segment.kernels
        backward = segment.phase == "backward"
        attention = _attention(first, backward=backward).model_copy(update=changes)
        return segment.model_copy(update={"kernels": (attention, *others)})

    rows, instances = len(step.memory.birth_tick), len(step.schedule)
    columns = {name: [-1] * rows for name in ("producer", "entered", "outside_tick", "inside_tick")}
    ends = {name: [-1] * instances for name in ("forward_of", "rerun_end_tick", "release_tick")}
    return step.model_copy(
        update={
            **ends,
            "segments": tuple(map(attends, step.segments)),
            "memory": step.memory.model_copy(update={**columns, "kept": [0] * rows}),
        }
    )


@pytest.fixture
def masked(make_decoder: Callable[..., Profile]) -> Profile:
    """A decoder whose attention takes a mask, and which recomputes nothing."""
    return _changed(make_decoder())


def _changed(profile: Profile, **changes: object) -> Profile:
    steps = tuple(_with_attention(step, **changes) for step in profile.steps)
    return profile.model_copy(update={"steps": steps})


def _kernels(profile: Profile) -> list[Kernel]:
    return [k for s in profile.steps for segment in s.segments for k in segment.kernels]


@pytest.mark.parametrize(
    "changes",
    [
        {"causal": True},
        {"dtype": "fp32"},
        {"op": "_scaled_dot_product_flash_attention"},
        {"flops": Affine(0, 1.0)},
    ],
    ids=["causal", "fp32", "flash", "values of another width"],
)
def test_it_is_known_by_its_kernel(masked: Profile, changes: dict[str, object]) -> None:
    assert takes_a_mask(masked)
    assert not takes_a_mask(_changed(masked, **changes))


def test_causal_attention_has_half_of_the_products(masked: Profile) -> None:
    causal = with_causal_attention(masked)
    for before, after in zip(_kernels(masked), _kernels(causal), strict=True):
        if before.kind == "attention":
            assert after.flops == before.flops.times(0.5)
            assert after.causal and "flash" in after.op
        else:
            assert after == before
    step = next(one for one in masked.steps if one.numerics != "fp32")
    forward = sum(
        kernel.flops.at(1)
        for index in step.schedule
        for kernel in step.segments[index].kernels
        if kernel.kind == "attention" and not kernel.backward
    )
    assert masked.flops.at(1) - causal.flops.at(1) == pytest.approx(1.5 * forward)


def attention_changes(found: AdviceOutcome) -> list[Change]:
    return [one for one in found.changes if one.kind == "attention"]


def test_a_causal_mask_is_replaced_at_no_risk_to_the_loss(masked: Profile) -> None:
    found = advise(TODAY, masked, CATALOGUE, causal_mask="model.py:9")
    (change,) = attention_changes(found)
    assert change.plan.step_time_s.value < found.today.step_time_s.value
    assert change.verdict == "saves" and not change.alters_training
    assert "model.py:9" in change.text
    assert any("is_causal=True" in line for line in change.lines)
    assert not [note for note in found.notes if "is_causal" in note]
    causal = with_causal_attention(masked)
    assert not attention_changes(advise(TODAY, causal, CATALOGUE, causal_mask="model.py:9"))


def test_a_mask_that_nobody_knows_is_no_advice_but_a_condition(masked: Profile) -> None:
    """It was under "if the loss allows it", as if any model could be trained with it."""
    found = advise(TODAY, masked, CATALOGUE)
    assert not attention_changes(found)
    (note,) = [note for note in found.notes if "is_causal" in note]
    assert note.startswith("only if the mask of attention is a causal one")
    assert " a step" in note
