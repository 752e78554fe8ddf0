"""What a stack keeps for its backward pass."""

import pytest

from gpuplan.planner.plan.layout import Layout
from gpuplan.planner.plan.setup import Setup
from gpuplan.planner.predict.setup import setup_residence
from gpuplan.planner.software.kept_memory import fuses_kernels, loss_of


def test_the_loss_follows_the_stack_and_the_features() -> None:
    assert loss_of("torch-eager") == "whole"
    # Blocks are compiled, or the model: not the loss that a loop computes of what it returns.
    assert loss_of("torch-compile") == "whole"
    assert loss_of("torch-compile", {"fused-cross-entropy"}) == "one kernel"
    assert loss_of("megatron") == "softmax kept"


@pytest.mark.parametrize(
    ("stack", "date", "compiled", "fuses"),
    [
        ("torch-eager", None, False, False),
        ("torch-eager", None, True, True),
        ("torch-compile", (2023, 5), False, True),
        ("megatron", None, False, True),
        ("megatron", (2021, 8), False, False),
    ],
)
def test_what_fuses_kernels(stack: str, date: tuple[int, int], compiled: bool, fuses: bool) -> None:
    assert fuses_kernels(stack, date, compiled=compiled) is fuses  # pyright: ignore[reportArgumentType]


def test_a_feature_says_more_than_the_stack() -> None:
    base = {"layout": Layout(), "precision": "bf16", "micro_batch": 1, "stack": "torch-compile"}
    assert setup_residence(Setup(**base)).loss == "whole"
    assert setup_residence(Setup(**base)).fuses
    chunked = Setup(**base, features=frozenset({"chunked-cross-entropy"}))
    assert setup_residence(chunked).loss == "chunked"
    kept = Setup(**base, features=frozenset({"kept-logits"}))
    assert setup_residence(kept).keeps_logits and not setup_residence(Setup(**base)).keeps_logits
