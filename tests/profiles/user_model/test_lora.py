"""Low-rank adapters: where they stand, what they train, what they change."""

import pytest
import torch
from torch import nn

from gpuplan.catalog.errors import UsageError
from gpuplan.profiles.user_model.lora import LowRankAdapter, add_adapters, features_of
from gpuplan.profiles.user_model.lora_settings import parse_lora


class Conv1D(nn.Module):
    """A linear layer whose weight is (in, out), as GPT-2's."""

    def __init__(self, into: int, out: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(into, out))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q_proj, self.v_proj = nn.Linear(6, 6), nn.Linear(6, 4)
        self.norm, self.c_attn = nn.LayerNorm(4), Conv1D(4, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.c_attn(self.norm(self.v_proj(self.q_proj(x))))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(Block(), Block())
        self.head = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(x))

    def get_output_embeddings(self) -> nn.Module:
        return self.head


def trainable(model: nn.Module) -> dict[str, int]:
    return {n: p.numel() for n, p in model.named_parameters() if p.requires_grad}


def test_adapters_alone_train_and_at_first_change_nothing() -> None:
    model, x = Net(), torch.randn(5, 6)
    before = model(x)
    add_adapters(model, parse_lora("r=2,targets=q_proj+c_attn"))
    assert torch.equal(model(x), before)
    names = trainable(model)
    assert len(names) == 8  # Two matrices in each of two layers of two blocks.
    assert all(".down." in name or ".up." in name for name in names)
    assert sum(names.values()) == 2 * 2 * ((6 + 6) + (4 + 6))
    model(x).sum().backward()
    assert {n for n, p in model.named_parameters() if p.grad is not None} == set(names)


def test_an_adapter_adds_its_product_times_alpha_over_rank() -> None:
    layer = LowRankAdapter(nn.Linear(6, 4), parse_lora("r=2,alpha=8"))
    nn.init.normal_(layer.up.weight)
    x = torch.randn(3, 6)
    added = 4.0 * x @ layer.down.weight.T @ layer.up.weight.T
    assert torch.allclose(layer(x), layer.base(x) + added, atol=1e-5)


def test_a_transposed_layer_has_its_features_the_other_way_round() -> None:
    assert features_of(Conv1D(4, 6)) == features_of(nn.Linear(4, 6)) == (4, 6)


def test_all_linear_leaves_the_output_head_alone() -> None:
    model = Net()
    add_adapters(model, parse_lora("r=1,targets=all-linear"))
    adapted = {n for n, one in model.named_modules() if isinstance(one, LowRankAdapter)}
    assert adapted == {f"blocks.{i}.{n}" for i in (0, 1) for n in ("q_proj", "v_proj", "c_attn")}


@pytest.mark.parametrize(
    ("targets", "message"),
    [("q_prj", "q_prj is no layer of Net. Did you mean q_proj"), ("norm", "norm is not a linear")],
)
def test_a_layer_that_is_not_there_is_refused_with_those_that_are(
    targets: str, message: str
) -> None:
    model = Net()
    with pytest.raises(UsageError) as raised:
        add_adapters(model, parse_lora(f"r=1,targets={targets}"))
    assert message in raised.value.message
    assert "c_attn, head, q_proj, v_proj" in (raised.value.fix or "")
    assert all(p.requires_grad for p in model.parameters())
