"""Stages of any model of repeated blocks compute what the whole model does; others are refused.

Most models run as stages chained by hand in this process. Real ranks are in
`test_pipeline_ranks.py`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils.checkpoint import checkpoint

import gpuplan
from gpuplan.catalog.errors import GpuplanError, UsageError
from gpuplan.launcher.runner.pipeline import (
    StageModule,
    blocks_per_stage,
    build_stages,
    cut_model,
    make_schedule,
)
from gpuplan.launcher.runner.pipeline_stage import Feed
from gpuplan.planner.stages import chunk_sizes
from gpuplan.profiles.blocks import find_blocks
from gpuplan.profiles.contract import load_workload
from gpuplan.profiles.spec import parse_model_spec

EXAMPLES = Path(gpuplan.__file__).parent / "examples"
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
        stage.pipeline_feed = Feed([batch], 1.0)
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


class SkipsToHead(Model):
    def forward(self, tokens: Tensor) -> Tensor:
        x = self.begin(tokens)
        return self.end(self.middle(x) + x)


class SkipsDetached(Model):
    def forward(self, tokens: Tensor) -> Tensor:
        x = self.begin(tokens)
        return self.end(self.middle(x) + x.detach())


class GathersLayers(Model):
    def forward(self, tokens: Tensor) -> Tensor:
        x, seen = self.begin(tokens), []
        for layer in self.layers:
            x = layer(x)
            seen.append(x)
        return self.end(torch.stack(seen).mean(0))


class ChangesBetween(Model):
    def middle(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x) * 0.9
        return x


class ChangesBetweenInPlace(Model):
    def middle(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
            x *= 0.9
        return x


class Twice(Model):
    def middle(self, x: Tensor) -> Tensor:
        return super().middle(super().middle(x))


class Backwards(Model):
    def middle(self, x: Tensor) -> Tensor:
        for layer in reversed(self.layers):
            x = layer(x)
        return x


class LeavesOneOut(Model):
    def middle(self, x: Tensor) -> Tensor:
        for layer in self.layers[:-1]:
            x = layer(x)
        return x


class ConditionedBlock(Block):
    def forward(self, x: Tensor, condition: Tensor) -> Any:  # type: ignore[override]
        return super().forward(x) + condition


class Conditioned(Model):
    """Every block is told something that parameters before the blocks made."""

    block = ConditionedBlock

    def middle(self, x: Tensor) -> Tensor:
        condition = self.scale * 2
        for layer in self.layers:
            x = layer(x, condition)
        return x


class AuxiliaryBlock(Block):
    def forward(self, x: Tensor) -> Any:
        self.auxiliary = x.square().mean()
        return super().forward(x)


class Auxiliary(Model):
    """The loss adds up what blocks left behind, as balance losses of experts do."""

    block = AuxiliaryBlock

    def forward(self, tokens: Tensor) -> Tensor:
        logits = super().forward(tokens)
        return logits + sum(layer.auxiliary for layer in self.layers)  # type: ignore[misc]


class SharingBlock(Block):
    def forward(self, x: Tensor) -> Any:
        return super().forward(self.__dict__["outer"](x))


class SharedNorm(Model):
    """All blocks use a module outside of them."""

    block = SharingBlock

    def __init__(self) -> None:
        super().__init__()
        for layer in self.layers:
            layer.__dict__["outer"] = self.norm


class Regularised(Model):
    def forward(self, tokens: Tensor) -> Tensor:
        return super().forward(tokens) + self.layers[0].linear.weight.square().mean()


REFUSED = {
    SkipsToHead: "after the blocks uses a value from before layers.0",
    SkipsDetached: "after the blocks uses a value from before layers.0",
    GathersLayers: "after the blocks uses a value from inside layers.0",
    ChangesBetween: "layers.1 is given something other than what layers.0 returned",
    ChangesBetweenInPlace: "layers.1 is given something other than what layers.0 returned",
    Twice: "layers.0 runs more than once",
    Backwards: "layers.3 runs before earlier ones",
    LeavesOneOut: "only 3 of 4 blocks ran",
    Conditioned: "layers.1 uses a value from before layers.0",
    Auxiliary: "after the blocks uses a value from inside layers.0",
    SharedNorm: "layers.0 uses the parameter norm.weight",
    Regularised: "after the blocks uses the parameter layers.0.linear.weight",
}


@pytest.mark.parametrize("kind", REFUSED, ids=lambda kind: kind.__name__)
def test_a_model_whose_blocks_are_no_chain_is_refused(kind: Any) -> None:
    model: Any = built(kind)
    with pytest.raises(UsageError) as caught:
        cut_model(compute_loss, model, make_batch(), 2)
    assert REFUSED[kind] in caught.value.message
    assert "leave pipeline parallelism out" in (caught.value.fix or "")
    assert type(model.layers[0]) is kind.block


class Compiled(Model):
    def __init__(self) -> None:
        super().__init__()
        self.layers[0].compile(backend="eager")


def test_a_file_that_compiles_its_model_is_refused() -> None:
    with pytest.raises(UsageError, match="compiles the model itself"):
        cut_model(compute_loss, built(Compiled), make_batch(), 2)


def test_too_many_stages_are_refused() -> None:
    with pytest.raises(UsageError, match="repeats 4 blocks, too few for 5 pipeline stages"):
        cut_model(compute_loss, built(Model), make_batch(), 5)


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("lstm.py", {"hidden": 16, "vocab": 20}, "no repeated blocks"),
        ("unet_diffusion.py", {"channels": 32}, "is given something other than what"),
    ],
)
def test_examples_that_are_no_chain_are_refused(
    name: str, params: dict[str, Any], message: str
) -> None:
    workload = load_workload(parse_model_spec(str(EXAMPLES / name), params=params))
    with pytest.raises(UsageError, match=message):
        cut_model(workload.compute_loss, workload.build_model(), workload.make_batch(2), 2)


def test_experts_behind_dense_layers_are_one_chain() -> None:
    params = {
        "layers": 4, "hidden": 32, "heads": 4, "kv_heads": 2, "ffn": 64, "vocab": 64,
        "seq_len": 16, "experts": 4, "dense_layers": 2, "moe_ffn": 16,
    }  # fmt: skip
    workload = load_workload(parse_model_spec(str(EXAMPLES / "decoder.py"), params=params))
    cut = cut_model(workload.compute_loss, workload.build_model(), workload.make_batch(2), 2)
    assert cut.paths == ("blocks.0", "blocks.1", "blocks.2", "blocks.3")
    assert cut.tied == ()


def test_stages_get_as_many_blocks_as_the_predictor_says() -> None:
    for blocks in range(1, 50):
        for stages in range(1, 20):
            try:
                expected = chunk_sizes(blocks, stages)
            except GpuplanError:
                with pytest.raises(UsageError):
                    blocks_per_stage(blocks, stages)
            else:
                assert list(blocks_per_stage(blocks, stages)) == expected


@pytest.fixture
def four_ranks() -> Iterator[Any]:
    dist.init_process_group("fake", rank=0, world_size=4, store=FakeStore())
    yield dist.group.WORLD
    dist.destroy_process_group()


def stages_of_rank_0(virtual: int) -> list[StageModule]:
    model = built(partial(Model, 8))
    cut = cut_model(compute_loss, model, make_batch(), 4 * virtual)
    return build_stages(cut, compute_loss, model, rank=0, ranks=4, device=CPU)


@pytest.mark.parametrize(
    ("virtual", "micro_batches", "kind", "message"),
    [
        (1, 3, "1f1b", "3 micro-batches do not fill 4"),
        (2, 6, "1f1b", "in groups of 4, and 6"),
        (2, 4, "gpipe", "one stage on each rank, not 2"),
    ],
)
def test_a_schedule_that_cannot_run_is_refused(
    four_ranks: Any, virtual: int, micro_batches: int, kind: Any, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        make_schedule(stages_of_rank_0(virtual), four_ranks, CPU, micro_batches, kind=kind)


def test_micro_batches_of_several_shapes_are_refused(four_ranks: Any) -> None:
    schedule = make_schedule(stages_of_rank_0(1), four_ranks, CPU, 4)
    with pytest.raises(UsageError, match="of one size"):
        schedule.run([make_batch(2), make_batch(2), make_batch(2), make_batch(1)])
