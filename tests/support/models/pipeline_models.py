"""Small models of repeated blocks, and what a chain of their pipeline stages computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from gpuplan.launcher.runner.pipeline.schedule import StageModule, build_stages, cut_model
from gpuplan.launcher.runner.pipeline.stage import Feed

CPU = torch.device("cpu")
WIDTH, TOKENS, VOCAB = 8, 6, 11


class Block(nn.Module):
    """A residual layer; subclasses are called, or answer, in other ways."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Any:
        return x + self.linear(self.norm(x)).tanh()


class Model(nn.Module):
    """Embedding, blocks, head; the loss comes from `compute_loss`."""

    block: type[Block] = Block
    layers: Any

    def __init__(self, layers: int = 4) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, WIDTH)
        self.scale = nn.Parameter(torch.full((WIDTH,), 1.1))
        self.layers = nn.ModuleList(self.block() for _ in range(layers))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCAB)
        self.shift = nn.Parameter(torch.zeros(VOCAB))
        self.register_buffer("mask", torch.ones(TOKENS, 1), persistent=True)

    def begin(self, tokens: Tensor) -> Tensor:
        return self.embedding(tokens) * self.scale

    def middle(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x

    def end(self, x: Tensor) -> Tensor:
        return self.head(self.norm(x) * self.mask) + self.shift

    def forward(self, tokens: Tensor) -> Tensor:
        return self.end(self.middle(self.begin(tokens)))


def compute_loss(model: nn.Module, batch: Any) -> Tensor:
    tokens, targets = batch
    return F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())


def make_batch(size: int = 2) -> tuple[Tensor, Tensor]:
    return torch.randint(VOCAB, (size, TOKENS)), torch.randint(VOCAB, (size, TOKENS))


class Tied(Model):
    def __init__(self) -> None:
        super().__init__()
        self.head.weight = self.embedding.weight


class TiedByUse(Model):
    """The head is no module: it multiplies by the embedding."""

    def end(self, x: Tensor) -> Tensor:
        return F.linear(self.norm(x), self.embedding.weight) + self.shift


class NamedBlock(Block):
    def forward(self, *, mask: Any = None, hidden_states: Tensor, more: Any) -> Any:  # type: ignore[override]
        assert more is None or more.requires_grad is False
        return super().forward(hidden_states) * mask, torch.ones(3), None


class Named(Model):
    """Called by keywords, with arguments made of the hidden state's shape; answers a tuple."""

    block = NamedBlock

    def middle(self, x: Tensor) -> Tensor:
        length = x.shape[1]
        mask = torch.ones(length, 1, dtype=x.dtype, device=x.device)
        for layer in self.layers:
            x, weights, _ = layer(hidden_states=x, mask=mask, more=torch.zeros_like(x))
            assert weights.shape == (3,)
        return x


class InPlaceBlock(Block):
    def forward(self, x: Tensor) -> Any:
        x += self.linear.bias
        return super().forward(x)


class InPlace(Model):
    block = InPlaceBlock


class InSequence(Model):
    def middle(self, x: Tensor) -> Tensor:
        return nn.Sequential(*self.layers)(x)


class Recomputing(Model):
    """The file itself recomputes every block."""

    def middle(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False)
        return x


class ReadsValues(Model):
    """Needs values to run at all, so that no run without data can record it."""

    def begin(self, tokens: Tensor) -> Tensor:
        longest = int(tokens.max().item()) + 1
        return super().begin(tokens.clamp(max=longest))


class Recurrent(Model):
    """What comes before the blocks keeps a second list of its weights."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(WIDTH, WIDTH, batch_first=True)

    def begin(self, tokens: Tensor) -> Tensor:
        return self.lstm(super().begin(tokens))[0]


class Typed(Model):
    """Asks its blocks what they are."""

    def middle(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            assert isinstance(layer, Block) and type(layer).__name__ == "Block"
            assert layer.linear.in_features == WIDTH
            x = layer(x)
        return x


RUNNING = [
    Model, Tied, TiedByUse, Named, InPlace, InSequence, Recomputing, ReadsValues, Recurrent, Typed
]  # fmt: skip


def built(kind: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(3)
    return kind()


def chained(
    kind: Callable[[], nn.Module],
    ranks: int,
    virtual: int = 1,
    *,
    device: torch.device = CPU,
    prepare: Callable[[StageModule], None] = lambda stage: None,
    batch: Any = None,
) -> tuple[float, dict[str, Tensor], list[StageModule]]:
    """Return loss and gradients of stages that hand each other what ranks would send."""
    batch = batch or to(device, make_batch())
    stages: dict[int, StageModule] = {}
    cut = cut_model(compute_loss, built(kind), batch, ranks * virtual, device=device)
    for rank in range(ranks):
        model = built(kind)
        mine = build_stages(cut, compute_loss, model, rank=rank, ranks=ranks, device=device)
        stages |= {stage.pipeline_stage: stage for stage in mine}
    ordered = [stages[number] for number in sorted(stages)]
    for stage in ordered:
        prepare(stage)
        stage.pipeline_feed = Feed([batch], [1.0])
    inputs: list[Tensor | None] = [None]
    outputs: list[Tensor] = []
    for stage in ordered:
        outputs.append(stage(inputs[-1]))
        inputs.append(outputs[-1].detach().requires_grad_())
    gradient = None
    for given, output in zip(reversed(inputs[:-1]), reversed(outputs), strict=True):
        output.backward(gradient)
        gradient = None if given is None else given.grad
    gradients: dict[str, Tensor] = {}
    for stage in ordered:
        for name, one in stage.named_parameters():
            if one.grad is not None:
                gradients[name] = gradients.get(name, torch.zeros_like(one)) + one.grad
    return outputs[-1].item(), gradients, ordered


def to(device: torch.device, batch: Any) -> Any:
    return tuple(one.to(device) for one in batch)


def whole(kind: Callable[[], nn.Module], batch: Any) -> tuple[float, dict[str, Tensor]]:
    model = built(kind)
    loss = compute_loss(model, batch)
    loss.backward()
    named = model.named_parameters()
    return loss.item(), {name: one.grad for name, one in named if one.grad is not None}


def assert_same(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert set(found) == set(expected)
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-5, atol=1e-7, msg=name)
