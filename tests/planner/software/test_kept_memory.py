"""What a stack keeps for its backward pass."""

import pytest

from gpuplan.planner.plan.layout import Layout
from gpuplan.planner.plan.setup import Setup
from gpuplan.planner.predict.setup import setup_residence
from gpuplan.planner.software.kept_memory import (
    KEPT_GRADIENTS,
    fused_kernels,
    keeps_gradients,
    loss_of,
    megatron_blocks,
)
from gpuplan.profiles.passes.megatron_blocks import AS_WRITTEN, MegatronBlocks


def test_the_loss_follows_the_stack_and_the_features() -> None:
    assert loss_of("torch-eager") == "whole"
    # Blocks are compiled, or the model: not the loss that a loop computes of what it returns.
    assert loss_of("torch-compile") == "whole"
    fused = {"fused-cross-entropy"}
    assert loss_of("torch-compile", fused) == "one kernel"
    assert loss_of("torch-compile", fused | {"returned-logits"}) == "one kernel beside zeros"


@pytest.mark.parametrize(
    ("date", "loss"),
    [
        ((2022, 12), "softmax kept"),
        ((2023, 2), "softmax in place"),
        ((2025, 3), "softmax in place"),
        ((2025, 4), "gradient in place"),
        ((2026, 6), "gradient in place"),
        # Transformer Engine's gradient is in fp32 since, and as large as a softmax.
        ((2026, 7), "softmax in place"),
        (None, "softmax in place"),
    ],
)
def test_megatrons_loss_follows_its_date(date: tuple[int, int] | None, loss: str) -> None:
    assert loss_of("megatron", (), date) == loss


def test_what_megatrons_blocks_let_go_of() -> None:
    assert megatron_blocks("torch-eager", None) == AS_WRITTEN
    assert megatron_blocks("megatron", (2025, 4)) == MegatronBlocks(copies_values=True)
    both = MegatronBlocks(copies_values=True, weights_inside_experts=True)
    assert megatron_blocks("megatron", (2025, 5)) == megatron_blocks("megatron", None) == both


@pytest.mark.parametrize(
    ("stack", "date", "compiled", "fuses"),
    [
        ("torch-eager", None, False, "nothing"),
        ("torch-eager", None, True, "blocks"),
        ("torch-compile", (2023, 5), False, "blocks"),
        ("megatron", None, False, "activation functions"),
        ("megatron", (2021, 8), False, "nothing"),
    ],
)
def test_what_kernels_are_fused(
    stack: str, date: tuple[int, int], compiled: bool, fuses: str
) -> None:
    assert fused_kernels(stack, date, compiled=compiled) == fuses  # pyright: ignore[reportArgumentType]


def test_a_feature_says_more_than_the_stack() -> None:
    base = {"layout": Layout(), "precision": "bf16", "micro_batch": 1, "stack": "torch-compile"}
    assert setup_residence(Setup(**base)).loss == "whole"
    assert setup_residence(Setup(**base)).fuses == "blocks"
    chunked = Setup(**base, features=frozenset({"chunked-cross-entropy"}))
    assert setup_residence(chunked).loss == "chunked"
    kept = Setup(**base, features=frozenset({"kept-logits"}))
    assert setup_residence(kept).keeps_logits and not setup_residence(Setup(**base)).keeps_logits


@pytest.mark.parametrize(
    ("precision", "autocast", "shard", "keeps"),
    [
        ("fp32", True, 1, True),
        ("fp16-amp", True, 1, True),
        # Apex O2 drops those of its 16-bit layers before every backward pass.
        ("fp16-amp", False, 1, False),
        ("bf16-amp", False, 8, True),
    ],
)
def test_gradients_are_kept_where_the_feature_says_so_and_not_by_apex(
    precision: str, autocast: bool, shard: int, keeps: bool
) -> None:
    layout = Layout(data=shard, shard=shard, zero_stage=3 if shard > 1 else 0)
    base = {"layout": layout, "precision": precision, "micro_batch": 1, "autocast": autocast}
    setup = Setup(**base, features=frozenset({KEPT_GRADIENTS}))
    assert keeps_gradients(setup) is keeps
    assert setup_residence(setup).keeps_gradients is keeps
    assert not keeps_gradients(Setup(**base))


@pytest.mark.parametrize(
    ("compiled", "layout", "loss"),
    [
        (True, Layout(), "one kernel"),
        (True, Layout(data=8), "one kernel"),
        (True, Layout(data=8, shard=8, zero_stage=3), "whole"),
        (True, Layout(tensor=2), "whole"),
        (False, Layout(), "whole"),
    ],
)
def test_a_loss_in_a_model_that_is_compiled_whole_is_one_kernel(
    compiled: bool, layout: Layout, loss: str
) -> None:
    """Blocks are compiled one by one under FSDP and tensor ranks: the loss is outside of them."""
    setup = Setup(layout=layout, precision="bf16-amp", micro_batch=1, compile=compiled)
    assert setup_residence(setup, loss_in_model=True).loss == loss
    assert setup_residence(setup).loss == "whole"
    beside = setup_residence(setup, loss_in_model=True, returns_logits=True).loss
    assert beside == (f"{loss} beside zeros" if loss == "one kernel" else loss)
