"""An optimizer trains the model's own parameters, from the first step to the last."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gpuplan.catalog.errors import UserFileError
from gpuplan.launcher.runner.training.trained_parameters import (
    TrainedParameters,
    refuse_foreign,
)


def test_a_parameter_of_nobody_is_refused() -> None:
    model, scale = nn.Linear(2, 2), nn.Parameter(torch.zeros(3, 1))
    own = list(model.parameters())
    refuse_foreign(torch.optim.SGD(own[:1]), own)
    with pytest.raises(UserFileError, match=r"a parameter of the shape \(3, 1\)"):
        refuse_foreign(torch.optim.SGD([*own, scale]), own)


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
