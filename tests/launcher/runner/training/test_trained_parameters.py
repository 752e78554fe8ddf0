"""An optimizer trains the model's own parameters, from the first step to the last."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gpuplan.catalog.errors import UserFileError
from gpuplan.launcher.runner.training.trained_parameters import (
    TrainedParameters,
    refuse_closures,
    refuse_foreign,
)
from gpuplan.profiles.user_model.several_optimizers import Optimizers


def test_a_parameter_of_nobody_is_refused() -> None:
    model, scale = nn.Linear(2, 2), nn.Parameter(torch.zeros(3, 1))
    own = list(model.parameters())
    refuse_foreign(torch.optim.SGD(own[:1]), own)
    with pytest.raises(UserFileError, match=r"a parameter of the shape \(3, 1\)"):
        refuse_foreign(torch.optim.SGD([*own, scale]), own)


def test_an_optimizer_that_computes_the_loss_itself_is_refused() -> None:
    own = list(nn.Linear(2, 2).parameters())
    refuse_closures(torch.optim.AdamW(own))
    for optimizer in (torch.optim.LBFGS(own), Optimizers([torch.optim.LBFGS(own[:1])])):
        with pytest.raises(UserFileError, match="a LBFGS, whose step") as refused:
            refuse_closures(optimizer)
        assert "--command" in str(refused.value.fix)


@pytest.mark.parametrize("alone", [True, False])
def test_one_that_begins_to_train_is_named(alone: bool) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[0].requires_grad_(False)
    watched = TrainedParameters(model, alone=alone)
    watched.check()
    model[0].weight.requires_grad_(True)
    with pytest.raises(UserFileError, match=r"0\.weight began to train"):
        watched.check()


def test_one_may_stop_on_a_process_that_is_alone() -> None:
    model = nn.Linear(2, 2)
    alone, one_of_two = (TrainedParameters(model, alone=one) for one in (True, False))
    model.bias.requires_grad_(False)
    alone.check()
    with pytest.raises(UserFileError, match="bias stopped to train"):
        one_of_two.check()
