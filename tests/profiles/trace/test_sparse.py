"""Sparse gradients of embeddings: rows and their indices, and the optimizers that take them."""

import dataclasses
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from gpuplan.catalog.errors import UsageError, UserFileError
from gpuplan.profiles.analysis.replay import replay
from gpuplan.profiles.passes.optimizers import with_optimizer
from gpuplan.profiles.profile import Profile
from gpuplan.profiles.trace.trace import trace_workload
from gpuplan.profiles.user_model.workload import Workload

pytestmark = pytest.mark.slow

ROWS, WIDTH, LOOKED_UP = 10_000, 64, 20
Optimizer = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]


class Table(nn.Module):
    def __init__(self, *, dense: bool = False, twice: bool = False, table: str = "plain") -> None:
        super().__init__()
        made: dict[str, Callable[[], nn.Module]] = {
            "plain": lambda: nn.Embedding(ROWS, WIDTH, sparse=True),
            "padded": lambda: nn.Embedding(ROWS, WIDTH, sparse=True, padding_idx=ROWS - 1),
            "bag": lambda: nn.EmbeddingBag(ROWS, WIDTH, sparse=True, mode="sum"),
        }
        self.table = made[table]()
        self.head = nn.Linear(WIDTH, WIDTH) if dense else nn.Identity()
        self.twice = twice

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        found = self.head(self.table(rows))
        return found * self.table(rows) if self.twice else found


def sgd(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1)


def momentum(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def workload(optimizer: Optimizer, **how: Any) -> Workload:
    return dataclasses.replace(
        Workload(
            name="table",
            path=Path(__file__),
            build_model=lambda: Table(**how),
            make_batch=lambda size: (torch.randint(ROWS - 1, (size, LOOKED_UP)),),
            compute_loss=lambda model, batch: model(*batch).square().mean(),
            build_optimizer=optimizer,
        )
    )


def traced(optimizer: Optimizer, **how: Any) -> Profile:
    return trace_workload(workload(optimizer, **how), numerics=["fp32"])


def bytes_after_backward(profile: Profile, samples: int) -> int:
    """Return bytes that the backward pass leaves for the optimizer."""
    step = profile.steps[0]
    start = next(
        tick
        for number, tick in zip(step.schedule, step.start_tick, strict=True)
        if step.segments[number].phase == "optimizer"
    )
    memory = step.memory
    return sum(
        base + per_sample * samples
        for birth, death, base, per_sample in zip(
            memory.birth_tick,
            memory.death_tick,
            memory.bytes_base,
            memory.bytes_per_sample,
            strict=True,
        )
        if 0 <= birth < start < death
    )


@pytest.mark.parametrize("table", ["plain", "padded", "bag"])
@pytest.mark.parametrize("samples", [3, 50])
def test_a_gradient_is_the_rows_that_were_looked_up_and_their_indices(
    samples: int, table: str
) -> None:
    one = workload(sgd, table=table)
    model = one.build_model()
    one.compute_loss(model, one.make_batch(samples)).backward()
    gradient = model.get_parameter("table.weight").grad
    assert gradient is not None
    rows: Any = gradient
    real = sum(t.numel() * t.element_size() for t in (rows._indices(), rows._values()))
    assert real == samples * LOOKED_UP * (8 + 4 * WIDTH)
    assert bytes_after_backward(traced(sgd, table=table), samples) == real


def test_a_weight_used_twice_has_both_rows() -> None:
    once, twice = traced(sgd), traced(sgd, twice=True)
    assert bytes_after_backward(twice, 8) == 2 * bytes_after_backward(once, 8)


@pytest.mark.parametrize(
    ("optimizer", "dense", "state", "passes"),
    # Rows read or written, as torch runs each optimizer: see the module's own list of operations.
    [(sgd, True, 0, 3), (torch.optim.SparseAdam, False, 8, 25), (torch.optim.Adagrad, True, 4, 15)],
)
def test_a_step_moves_rows_and_not_the_table(
    optimizer: Optimizer, dense: bool, state: int, passes: int
) -> None:
    profile = traced(optimizer, dense=dense)
    facts = profile.optimizer
    assert profile.sparse_parameters == ROWS * WIDTH
    assert facts.state_bytes_per_parameter == pytest.approx(state)
    row_bytes = 4 * WIDTH * LOOKED_UP
    assert passes * row_bytes <= facts.step_bytes_per_sample <= 1.75 * passes * row_bytes
    assert facts.step_bytes_per_parameter < 1
    # The whole table is 2.4 MiB, and no gradient of it is made.
    spare = replay(profile.steps[0], 2).peak_allocated_bytes - 4 * profile.parameters
    assert spare - state * profile.parameters < 0.5 * 4 * ROWS * WIDTH


def test_the_user_is_told_where_it_runs() -> None:
    (note,) = traced(sgd).notes
    assert "table.weight" in note and "sparse gradients" in note and "one accelerator" in note


@pytest.mark.parametrize(
    ("optimizer", "dense", "said"),
    [
        (torch.optim.AdamW, False, "does not support sparse gradients"),
        (torch.optim.SparseAdam, True, "does not support dense gradients"),
        (momentum, False, "grows without end"),
    ],
)
def test_an_optimizer_that_cannot_work_is_the_users_to_change(
    optimizer: Optimizer, dense: bool, said: str
) -> None:
    with pytest.raises(UserFileError, match=said) as caught:
        traced(optimizer, dense=dense)
    assert "sparse=True out" in str(caught.value.fix) and "fault of gpuplan" not in str(
        caught.value.fix
    )


def test_another_operation_on_them_is_named() -> None:
    class Clipped(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:  # pyright: ignore
            for group in self.param_groups:
                for parameter in group["params"]:
                    torch.sparse.sum(parameter.grad, 0)
            super().step(closure)

    with pytest.raises(UserFileError, match="on a sparse tensor"):
        traced(lambda parameters: Clipped(parameters, lr=0.1))


def test_the_rules_for_other_optimizers_are_those_of_dense_gradients() -> None:
    with pytest.raises(UsageError, match="sparse gradients"):
        with_optimizer(traced(sgd), "adamw")


class Functional(nn.Module):
    """Looks rows up without a layer that says so."""

    def __init__(self, *, dense: bool = False, how: str = "embedding") -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(ROWS, WIDTH))
        self.head = nn.Linear(WIDTH, WIDTH) if dense else nn.Identity()
        self.how = how

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        if self.how == "bag":
            return self.head(F.embedding_bag(rows, self.weight, sparse=True, mode="sum"))
        return self.head(F.embedding(rows, self.weight, sparse=self.how != "dense"))


def functional(optimizer: Optimizer, **how: Any) -> Profile:
    made = dataclasses.replace(workload(optimizer), build_model=lambda: Functional(**how))
    return trace_workload(made, numerics=["fp32"])


@pytest.mark.parametrize(
    ("optimizer", "dense"),
    [(torch.optim.SparseAdam, False), (sgd, False), (sgd, True), (torch.optim.Adagrad, True)],
)
@pytest.mark.parametrize("how", ["embedding", "bag"])
def test_a_lookup_without_a_layer_is_traced_as_one_with_it(
    optimizer: Optimizer, dense: bool, how: str
) -> None:
    """An optimizer that refuses dense gradients is asked again with those that a step has."""
    layer = traced(optimizer, dense=dense, table="bag" if how == "bag" else "plain")
    found = functional(optimizer, dense=dense, how=how)
    assert found.sparse_parameters == layer.sparse_parameters == ROWS * WIDTH
    assert found.optimizer == layer.optimizer
    assert bytes_after_backward(found, 8) == bytes_after_backward(layer, 8)
    assert "sparse gradients" in found.notes[0]


@pytest.mark.parametrize(
    ("optimizer", "how", "said"),
    [
        (torch.optim.SparseAdam, "dense", "does not support dense gradients"),
        (torch.optim.AdamW, "embedding", "does not support sparse gradients"),
        (momentum, "embedding", "grows without end"),
    ],
)
def test_a_lookup_whose_gradients_the_optimizer_refuses_is_named(
    optimizer: Optimizer, how: str, said: str
) -> None:
    with pytest.raises(UserFileError, match=said):
        functional(optimizer, how=how)


def test_a_sparse_buffer_that_no_step_reads_is_held_by_its_parts() -> None:
    """As Whisper keeps which heads align words, and a graph its neighbours."""

    class Keeps(Table):
        def __init__(self) -> None:
            super().__init__(dense=True)
            self.register_buffer("kept", torch.eye(32).to_sparse())

    profile = trace_workload(dataclasses.replace(workload(sgd), build_model=Keeps))
    plain = trace_workload(workload(sgd, dense=True))
    assert profile.flops == plain.flops
