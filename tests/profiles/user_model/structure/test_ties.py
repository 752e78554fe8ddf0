"""Which weights of a model stand under several names, and where that stops a layout."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pipeline_models import Model, Tied, TiedByUse
from torch.distributed.tensor.parallel import ColwiseParallel

from gpuplan.profiles.user_model.structure.ties import completed_plan, tied_blocks, tied_modules

NAMES = ("embedding.weight", "head.weight")


class SharedLinears(Model):
    """The third block uses the weight of the first."""

    def __init__(self) -> None:
        super().__init__()
        self.layers[2].linear.weight = self.layers[0].linear.weight


class SharedNorm(Model):
    """All blocks hold the same norm, as one module."""

    def __init__(self) -> None:
        super().__init__()
        for layer in self.layers:
            layer.norm = self.layers[0].norm


class TiedToBlock(Model):
    """The last norm's weight is that of a block."""

    def __init__(self) -> None:
        super().__init__()
        self.norm.weight = self.layers[1].norm.weight


def test_a_head_that_is_the_embedding_is_named() -> None:
    assert tied_modules(Tied()) == ("embedding.weight", "head.weight")
    assert tied_blocks(Tied()) is None, "the first and the last stage add their gradients up"


def test_a_model_without_ties_has_none() -> None:
    for model in (Model(), TiedByUse(), torch.nn.Linear(2, 2)):
        assert (tied_modules(model), tied_blocks(model)) == (None, None)


def test_blocks_that_share_a_weight_are_named() -> None:
    names = ("layers.0.linear.weight", "layers.2.linear.weight")
    assert tied_modules(SharedLinears()) == names
    assert tied_blocks(SharedLinears()) == names


def test_one_module_in_two_places_is_split_once_but_cut_apart() -> None:
    assert tied_modules(SharedNorm()) is None
    assert tied_blocks(SharedNorm()) == ("layers.0.norm.weight", "layers.1.norm.weight")


def test_a_weight_of_a_block_and_of_the_rest_is_named() -> None:
    assert tied_blocks(TiedToBlock()) == ("layers.1.norm.weight", "norm.weight")


@pytest.mark.parametrize(
    ("plan", "names"),
    [
        ({"embedding": "embedding", "head": "colwise_gather_output"}, None),
        ({"embedding": "embedding_rowwise", "head": "colwise_rep"}, None),
        ({"layers.*.linear": "colwise"}, None),
        ({"head": "colwise_gather_output"}, None),
        ({"head": "colwise_gather_output", "norm": "sequence"}, NAMES),
        ({"embedding": "embedding", "head": "rowwise"}, NAMES),
        ({"embedding": "embedding"}, NAMES),
        ({"embedding": "embedding", "head": ColwiseParallel()}, NAMES),
    ],
    ids=str,
)
def test_what_a_plan_splits_alike_stays_one_weight(
    plan: dict[str, Any], names: tuple[str, str] | None
) -> None:
    assert tied_modules(Tied(), plan) == names


def test_the_embedding_of_a_split_head_is_split_too() -> None:
    plan = {"head": "colwise_gather_output"}
    assert completed_plan(Tied(), plan) == {**plan, "embedding": "embedding"}
    assert completed_plan(Model(), plan) == plan
