"""Several optimizers as one: what torch does with one optimizer goes to each of them."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import nn

from gpuplan.catalog.errors import UserFileError
from gpuplan.profiles.user_model.several_optimizers import (
    Optimizers,
    as_one_optimizer,
    optimizer_name,
    parts_of,
)

SCALE = 2.0**16


def _model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.Linear(6, 2))


def _optimizers(model: nn.Module) -> tuple[torch.optim.Optimizer, torch.optim.Optimizer]:
    matrices = [one for one in model.parameters() if one.ndim == 2]
    others = [one for one in model.parameters() if one.ndim < 2]
    return torch.optim.SGD(matrices, lr=0.1, momentum=0.9), torch.optim.AdamW(others, lr=0.01)


def _train(model: nn.Module, *optimizers: torch.optim.Optimizer, steps: int = 3) -> None:
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        model(torch.randn(8, 4, generator=generator)).square().mean().backward()
        for one in optimizers:
            one.step()
            one.zero_grad()


def _weights(model: nn.Module) -> torch.Tensor:
    return torch.cat([one.detach().flatten() for one in model.parameters()])


def test_one_step_is_a_step_of_each() -> None:
    apart, together = _model(), _model()
    _train(apart, *_optimizers(apart))
    _train(together, as_one_optimizer(_optimizers(together)))
    assert torch.equal(_weights(apart), _weights(together))


@pytest.mark.parametrize("several", [False, True])
def test_one_that_runs_the_model_itself_is_refused(several: bool) -> None:
    """LBFGS ended in "this is a fault of gpuplan"."""
    model = _model()
    found = torch.optim.LBFGS(model.parameters())
    with pytest.raises(UserFileError, match="LBFGS, whose step runs the model several times"):
        as_one_optimizer([found] if several else found)


def test_its_state_is_written_and_read_back_by_torch() -> None:
    model = _model()
    optimizer = as_one_optimizer(_optimizers(model))
    _train(model, optimizer)
    kept, state = deepcopy(model.state_dict()), deepcopy(optimizer.state_dict())
    _train(model, optimizer)

    later = _model()
    later.load_state_dict(kept)
    again = as_one_optimizer(_optimizers(later))
    again.load_state_dict(state)
    assert [len(part.state) for part in parts_of(again)] == [2, 4]
    _train(later, again)
    assert torch.equal(_weights(later), _weights(model))


def test_a_copy_has_its_own_parts() -> None:
    model = _model()
    optimizer = as_one_optimizer(_optimizers(model))
    copied = deepcopy(optimizer)
    copied.param_groups[0]["lr"] = 3.0
    assert isinstance(copied, Optimizers) and len(copied) == 2
    assert optimizer.param_groups[0]["lr"] == 0.1


def test_a_schedule_of_all_and_one_of_a_part_set_the_rates_that_train() -> None:
    model = _model()
    parts = _optimizers(model)
    optimizer = as_one_optimizer(parts)
    for_all = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5**step)
    for_one = torch.optim.lr_scheduler.StepLR(parts[1], step_size=1, gamma=0.1)
    _train(model, optimizer, steps=1)
    for_all.step()
    assert [part.param_groups[0]["lr"] for part in parts] == [0.05, 0.005]
    for_one.step()
    assert parts[1].param_groups[0]["lr"] == pytest.approx(0.0005)


def test_a_loss_scaler_skips_the_step_of_both() -> None:
    model = _model()
    optimizer = as_one_optimizer(_optimizers(model))
    scaler = torch.amp.GradScaler("cpu", init_scale=SCALE)
    before = _weights(model)
    model(torch.randn(8, 4)).sum().mul(SCALE).backward()
    scaler.scale(torch.ones(()))
    for one in model.parameters():
        one.grad = torch.full_like(one, float("inf"))
    scaler.step(optimizer)
    scaler.update()
    assert torch.equal(_weights(model), before)
    assert scaler.get_scale() == SCALE / 2


def test_a_closure_is_called_once() -> None:
    model = _model()
    calls = []

    def closure() -> torch.Tensor:
        calls.append(1)
        loss = model(torch.ones(8, 4)).square().mean()
        loss.backward()
        return loss

    optimizer = as_one_optimizer(_optimizers(model))
    assert isinstance(optimizer, Optimizers)
    assert optimizer.step(closure).item() > 0
    assert len(calls) == 1 and len(optimizer.state) == 6


def test_its_state_is_looked_up_and_dropped_by_parameter() -> None:
    model = _model()
    optimizer = as_one_optimizer(_optimizers(model))
    first, second = list(model.parameters())[:2]
    assert not optimizer.state and optimizer.state.pop(first, None) is None
    _train(model, optimizer, steps=1)
    assert set(optimizer.state[second]) == {"step", "exp_avg", "exp_avg_sq"}
    optimizer.state.pop(second)
    optimizer.state[second] = {"step": torch.zeros(())}
    assert set(parts_of(optimizer)[1].state[second]) == {"step"}
    others: tuple[Any, ...] = (nn.Parameter(torch.zeros(2)), None)
    for missing in others:
        with pytest.raises(KeyError):
            optimizer.state[missing] = {}
        assert missing not in optimizer.state


def test_one_in_a_list_stays_itself_and_a_group_belongs_to_one() -> None:
    model = _model()
    matrices, others = _optimizers(model)
    assert as_one_optimizer([others]) is others
    together = as_one_optimizer((matrices, others))
    assert optimizer_name(together) == "SGD+AdamW"
    with pytest.raises(TypeError, match="one of the optimizers"):
        together.add_param_group({"params": []})
