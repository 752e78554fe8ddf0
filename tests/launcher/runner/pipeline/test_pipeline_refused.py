"""Models that cannot be cut into pipeline stages, and schedules that cannot run, say why."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from pipeline_models import CPU, Block, Model, built, compute_loss, make_batch
from torch import Tensor
from torch.testing._internal.distributed.fake_pg import FakeStore

import gpuplan
from gpuplan.catalog.errors import UsageError
from gpuplan.launcher.runner.pipeline.schedule import (
    StageModule,
    build_stages,
    cut_model,
    make_schedule,
)
from gpuplan.planner.plan.errors import UnsupportedError
from gpuplan.profiles.user_model.contract import load_workload
from gpuplan.profiles.user_model.spec import parse_model_spec

EXAMPLES = Path(gpuplan.__file__).parent / "examples"


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
    with pytest.raises(UnsupportedError, match="4 layers are too few for 5 pipeline chunks"):
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
