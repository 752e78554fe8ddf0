"""Stages of any model of repeated blocks compute what the whole model does; others are refused.

Most models run as stages chained by hand in this process. Real ranks are in
`test_pipeline_ranks.py`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from pipeline_models import (
    RUNNING,
    Model,
    ReadsValues,
    Recurrent,
    assert_same,
    built,
    chained,
    compute_loss,
    make_batch,
    to,
    whole,
)
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from gpuplan.launcher.runner.pipeline.schedule import StageModule, cut_model
from gpuplan.profiles.user_model.structure.blocks import find_blocks


@pytest.mark.parametrize("kind", RUNNING, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize(("ranks", "virtual"), [(2, 1), (4, 1), (2, 2), (3, 1)])
def test_stages_compute_what_the_whole_model_does(kind: Any, ranks: int, virtual: int) -> None:
    torch.manual_seed(8)
    batch = make_batch()
    loss, gradients, stages = chained(kind, ranks, virtual, batch=batch)
    expected_loss, expected = whole(kind, batch)
    assert loss == pytest.approx(expected_loss, rel=1e-6)
    assert_same(gradients, expected)
    keys = [key for stage in stages for key in stage.state_dict()]
    assert set(keys) == set(built(kind).state_dict())


def test_a_stage_holds_its_own_parameters_alone() -> None:
    _, _, (first, second) = chained(Model, 2)
    assert [name for name, _ in first.named_parameters() if "layers" not in name] == [
        "scale",
        "embedding.weight",
    ]
    assert {name.split(".")[1] for name, _ in second.named_parameters() if "layers" in name} == {
        "2",
        "3",
    }
    assert [key for key in second.state_dict() if "layers" not in key] == [
        "shift",
        "mask",
        "norm.weight",
        "norm.bias",
        "head.weight",
        "head.bias",
    ]
    assert len(first.pipeline_blocks) == 2
    held = {
        tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes()
        for module in first._pipeline_model.modules()
        for tensor in [*module.__dict__.values(), *module._parameters.values()]
        if isinstance(tensor, Tensor)
    }
    own = sum(one.numel() * one.element_size() for one in first.parameters())
    others = len(list(built(Model).parameters())) - len(list(first.parameters()))
    assert sum(held.values()) == own + others * 4  # One element stands for each other tensor.


def test_blocks_still_count_as_equal() -> None:
    _, _, (first, _) = chained(Model, 2)
    assert len(find_blocks(nn.Sequential(*first.pipeline_blocks))[0].modules) == 2


@pytest.mark.parametrize("when", ["before", "after"])
def test_recompute_may_be_put_on_blocks_before_or_after(when: str) -> None:
    ran: list[int] = []

    def recompute(block: nn.Module) -> None:
        forward = block.forward

        def counted(*args: Any) -> Any:
            ran.append(1)
            return forward(*args)

        block.forward = partial(checkpoint, counted, use_reentrant=False)

    def kind() -> nn.Module:
        model = Model()
        for layer in model.layers if when == "before" else []:
            recompute(layer)
        return model

    def prepare(stage: StageModule) -> None:
        ran.clear()
        for block in stage.pipeline_blocks if when == "after" else []:
            recompute(block)

    torch.manual_seed(8)
    batch = make_batch()
    _, gradients, _ = chained(kind, 2, batch=batch, prepare=prepare)
    assert len(ran) == 2 * 4
    assert_same(gradients, whole(Model, batch)[1])


@pytest.mark.parametrize(
    "kind",
    # ReadsValues is recorded on the CPU, where a batch of the device is not.
    [kind for kind in RUNNING if kind is not ReadsValues],
    ids=lambda kind: kind.__name__,
)
def test_stages_run_on_a_gpu(kind: Any, require: Callable[[str, str], None]) -> None:
    require("accelerator", "stages run on it")
    device = torch.device("cuda")
    torch.manual_seed(8)
    batch = make_batch()
    loss, gradients, _ = chained(kind, 2, device=device, batch=to(device, batch))
    expected_loss, expected = whole(kind, batch)
    assert loss == pytest.approx(expected_loss, rel=1e-4)
    assert set(gradients) == set(expected)
    for name, gradient in expected.items():
        torch.testing.assert_close(gradients[name].cpu(), gradient, rtol=1e-3, atol=1e-5)


def test_a_model_is_as_before_after_it_was_cut() -> None:
    for kind in (Model, Recurrent, ReadsValues):
        model = built(kind)
        kinds = [type(module) for module in model.modules()]
        state = copy.deepcopy(model.state_dict())
        parameters = [id(one) for one in model.parameters()]
        random = torch.get_rng_state()
        cut_model(compute_loss, model, make_batch(), 2)
        assert [type(module) for module in model.modules()] == kinds
        assert [id(one) for one in model.parameters()] == parameters
        assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
        make_batch()
        after = torch.get_rng_state()
        torch.set_rng_state(random)
        make_batch()
        make_batch()
        assert torch.equal(torch.get_rng_state(), after)
        assert compute_loss(model, make_batch()).requires_grad
