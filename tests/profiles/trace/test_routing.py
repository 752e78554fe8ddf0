"""Layers of experts that pick their tokens by value: the refusal has the number to state."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from gpuplan.catalog.errors import UserFileError
from gpuplan.profiles.profile import Profile
from gpuplan.profiles.trace.trace import trace_workload
from gpuplan.profiles.user_model.assumptions import assumed_by_options, parse_assumptions
from gpuplan.profiles.user_model.workload import Workload

pytestmark = pytest.mark.slow

TOKENS, WIDTH, EXPERTS, K = 10, 16, 4, 2
Layer = Callable[[nn.Module, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def by_choice(
    expert: nn.Module, x: torch.Tensor, chosen: torch.Tensor, _scores: torch.Tensor
) -> torch.Tensor:
    rows, _nth = torch.where(chosen == 1)
    return expert(x[rows])


def by_token(
    expert: nn.Module, x: torch.Tensor, chosen: torch.Tensor, _scores: torch.Tensor
) -> torch.Tensor:
    return expert(x[(chosen == 1).any(-1)])


def by_one_hot(
    expert: nn.Module, x: torch.Tensor, chosen: torch.Tensor, _scores: torch.Tensor
) -> torch.Tensor:
    mask = nn.functional.one_hot(chosen, EXPERTS).permute(2, 1, 0)
    _nth, rows = torch.nonzero(mask[1], as_tuple=True)
    return expert(x[rows])


def by_another_value(
    expert: nn.Module, x: torch.Tensor, _chosen: torch.Tensor, scores: torch.Tensor
) -> torch.Tensor:
    return expert(x[torch.where(scores > 0.5)[0]])


class Experts(nn.Module):
    def __init__(self, layer: Layer) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, EXPERTS)
        self.expert = nn.Linear(WIDTH, WIDTH)
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.flatten(0, 1)
        scores, chosen = self.router(x).softmax(-1).topk(K)
        return self.layer(self.expert, x, chosen, scores.flatten()[:-1]).sum() + scores.sum()


def traced(layer: Layer, *sizes: str) -> Profile:
    workload = Workload(
        name="experts",
        path=Path(__file__),
        build_model=lambda: Experts(layer),
        make_batch=lambda size: (torch.randn(size, TOKENS, WIDTH),),
        compute_loss=lambda model, batch: model(*batch),
        build_optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    )
    assumptions = parse_assumptions(assumed_by_options((), (), sizes))
    return trace_workload(workload, numerics=["fp32"], assumptions=assumptions)


def refusal(layer: Layer) -> UserFileError:
    with pytest.raises(UserFileError, match="needs the values of a tensor") as error:
        traced(layer)
    return error.value


def test_a_mask_of_a_choice_is_told_with_the_share_of_one_expert() -> None:
    error = refusal(by_choice)
    line = by_choice.__code__.co_firstlineno + 3
    assert f"test_routing.py:{line}, in by_choice: torch.where with a condition alone" in str(error)
    assert (error.fix or "").startswith(
        "state how many it finds in your training: if these are the tokens of one expert,"
        f" --assume-size test_routing.py:{line}=25% (tokens × k ÷ experts, of the"
        f" {2 * TOKENS * K} values that are looked at: the top 2 of 4 experts"
    )


@pytest.mark.parametrize("layer", [by_choice, by_token, by_one_hot])
def test_the_number_that_is_named_is_that_of_an_even_router(layer: Layer) -> None:
    """The expert multiplies tokens × k ÷ experts rows of each sample."""
    found = re.search(r"--assume-size (\S+)", refusal(layer).fix or "")
    assert found is not None
    products = 2 * TOKENS * K / EXPERTS * WIDTH * WIDTH + 2 * TOKENS * WIDTH * EXPERTS
    # The batch needs no gradient: forward and weights alone.
    assert traced(layer, found[1]).flops.per_sample == 2 * products


def test_a_mask_of_another_value_is_no_choice_of_experts() -> None:
    fix = refusal(by_another_value).fix or ""
    assert fix.startswith("state how many it finds in your training: --assume-size ")
    assert "=64 (or 64/sample, or 50% of the values that are looked at" in fix
