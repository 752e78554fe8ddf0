"""What a cross-entropy holds, by the kernel that computes it."""

import pytest

from gpuplan.profiles.analysis.replay import replay
from gpuplan.profiles.passes.loss import Loss, with_loss
from gpuplan.profiles.passes.torchscript_gelu import with_scripted_gelu
from gpuplan.profiles.profile import CATEGORIES, Affine, Kernel, MemoryStream, Segment, StepTrace

MIB = 2**20
HALF, WHOLE = 10 * MIB, 20 * MIB
"""Logits in 16 bits and in 32."""


def kernel(op: str) -> Kernel:
    nothing = Affine(0)
    return Kernel(
        kind="softmax", op=op, dims={}, dtype="fp32",
        flops=nothing, bytes_read=nothing, bytes_written=nothing,
    )  # fmt: skip


def step_of(forward: list[str], backward: list[str], rows: list[tuple[int, int, int]]) -> StepTrace:
    """Return a step of these operations, one a tick, with rows of (birth, death, size)."""
    end = len(forward) + len(backward)
    return StepTrace(
        numerics="pure16",
        recompute="none",
        segments=tuple(
            Segment(
                name=phase,
                phase=phase,  # pyright: ignore[reportArgumentType]
                block=None,
                kernels=tuple(kernel(op) for op in ops),
                offsets=tuple(range(len(ops))),
            )
            for phase, ops in (("forward", forward), ("backward", backward))
        ),
        schedule=[0, 1],
        start_tick=[0, len(forward)],
        memory=MemoryStream(
            birth_tick=[birth for birth, _, _ in rows],
            death_tick=[death for _, death, _ in rows],
            bytes_base=[0] * len(rows),
            bytes_per_sample=[size for _, _, size in rows],
            category=[CATEGORIES.index("temporary")] * len(rows),
            instance=[0] * len(rows),
            end_tick=end,
        ),
    )


SIXTEEN_BIT = step_of(
    ["mm", "_to_copy", "_log_softmax", "nll_loss_forward"],
    ["nll_loss_backward", "_log_softmax_backward_data", "_to_copy", "mm"],
    [(0, 2, HALF), (1, 4, WHOLE), (2, 6, WHOLE), (4, 6, WHOLE), (5, 7, WHOLE), (6, 8, HALF)],
)
FP32 = step_of(
    ["mm", "_log_softmax", "nll_loss_forward"],
    ["nll_loss_backward", "_log_softmax_backward_data", "mm"],
    [(0, 2, WHOLE), (1, 5, WHOLE), (3, 5, WHOLE), (4, 6, WHOLE)],
)


@pytest.mark.parametrize(
    ("loss", "keeps_logits", "peak_mib"),
    [
        ("whole", False, 60),  # Log-softmax and both gradients.
        ("whole", True, 70),
        ("one kernel", False, 20),  # Logits and their gradient, in 16 bits.
        ("one kernel beside zeros", False, 30),  # Another gradient of logits.
        ("one kernel beside zeros", True, 30),
        ("softmax kept", False, 40),  # Logits in fp32 and their softmax.
        ("softmax in place", False, 30),  # Logits in 16 bits and their softmax in fp32.
        ("gradient in place", False, 10),  # Logits, and then their gradient.
    ],
)
def test_sixteen_bit_logits(loss: Loss, keeps_logits: bool, peak_mib: int) -> None:
    step = with_loss(SIXTEEN_BIT, loss, keeps_logits=keeps_logits)
    assert replay(step, 1).peak_allocated_bytes == peak_mib * MIB


@pytest.mark.parametrize(
    ("loss", "keeps_logits", "peak_mib"),
    [
        ("whole", False, 60),
        ("whole", True, 80),
        ("one kernel", False, 40),
        ("one kernel beside zeros", False, 60),
        ("softmax kept", False, 40),
        ("softmax in place", False, 40),
        ("gradient in place", False, 20),
    ],
)
def test_fp32_logits(loss: Loss, keeps_logits: bool, peak_mib: int) -> None:
    step = with_loss(FP32, loss, keeps_logits=keeps_logits)
    assert replay(step, 1).peak_allocated_bytes == peak_mib * MIB


def test_a_step_without_cross_entropy_stays_as_it_is() -> None:
    step = step_of(["mm", "mm"], ["mm"], [(0, 3, WHOLE), (1, 2, HALF)])
    assert with_loss(step, "one kernel").memory == step.memory


def test_a_scripted_gelu_holds_what_it_captured_twice() -> None:
    # Input and output of one GELU; the kernel keeps the input until its backward pass.
    step = step_of(
        ["mm", "gelu", "mm"], ["mm", "gelu_backward"], [(0, 5, WHOLE), (1, 4, WHOLE), (3, 5, HALF)]
    )
    plain, scripted = replay(step, 1), replay(with_scripted_gelu(step), 1)
    assert plain.peak_allocated_bytes == (20 + 20 + 10) * MIB
    # In the forward pass two more of this step and three of the step before, whose are gone by
    # the time the backward pass makes its own.
    assert scripted.peak_allocated_bytes == (20 + 20 + 2 * 20 + 3 * 20) * MIB
