"""Frozen parameters: kept in another dtype, and which of them 4-bit loading quantises."""

import torch
from torch import nn

from gpuplan.profiles.user_model.lora import add_adapters
from gpuplan.profiles.user_model.lora_settings import parse_lora
from gpuplan.profiles.user_model.structure.frozen import cast_frozen, frozen_linear_weights


class Tied(nn.Module):
    """An embedding, a body of two layers, and a head that is the embedding."""

    def __init__(self, *, tied: bool = True) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 4)
        self.body = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 4))
        self.head = nn.Linear(4, 10, bias=False)
        if tied:
            self.head.weight = self.embed.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(self.embed(tokens)))


def test_what_is_frozen_is_cast_and_what_is_trained_is_not() -> None:
    model = Tied()
    model.register_buffer("table", torch.zeros(3))
    add_adapters(model, parse_lora("r=2,targets=all-linear"))
    cast_frozen(model, torch.bfloat16)
    kept = {(p.requires_grad, p.dtype) for p in model.parameters()}
    assert kept == {(True, torch.float32), (False, torch.bfloat16)}
    assert model.get_buffer("table").dtype == torch.float32
    assert model.get_parameter("head.base.weight") is model.embed.weight


def test_4_bit_loading_takes_frozen_linear_layers_but_the_head() -> None:
    for tied in (True, False):
        model = Tied(tied=tied)
        assert not list(frozen_linear_weights(model))  # All of it is trained.
        model.requires_grad_(False)
        assert [w.numel() for w in frozen_linear_weights(model)] == [24, 24]
    model.body[0].weight.requires_grad_(True)
    assert [w.numel() for w in frozen_linear_weights(model)] == [24]


def test_layers_inside_adapters_are_quantised_and_the_adapters_are_not() -> None:
    model = Tied(tied=False)
    add_adapters(model, parse_lora("r=2,targets=0"))
    assert [w.numel() for w in frozen_linear_weights(model)] == [24, 24]
