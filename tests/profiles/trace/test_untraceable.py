"""What is said of a file that cannot be traced, and what else is refused or let pass."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from traced_mlp import WIDTH, Mlp, compute_mlp_loss, workload

from gpuplan.catalog.errors import UserFileError
from gpuplan.profiles.trace.recording import meta, recorder
from gpuplan.profiles.trace.trace import trace_workload

pytestmark = pytest.mark.slow


_ATTEND = F.scaled_dot_product_attention


def _nested(x: torch.Tensor) -> torch.Tensor:
    """Return [batch, 1 head, tokens, 1] of samples that may differ in length, which is data."""
    rows = torch.nested.nested_tensor(list(x), layout=torch.jagged)
    return rows.unsqueeze(-1).unsqueeze(-1).transpose(1, 2)


@pytest.mark.parametrize(
    ("forward", "operation"),
    [
        (lambda _, x: x * x.sum().item(), "item"),
        (lambda _, x: x if x.sum() > 0 else -x, "__bool__"),
        (lambda _, x: x if 0 in x else -x, "__contains__"),
        (lambda _, x: x * float(np.asarray(x).sum()), "__array__"),
        (lambda _, x: x[x[:, 0] > 0], "indexing with a mask"),
        (lambda _, x: x[x[:, 0].nonzero()[:, 0]], "nonzero"),
        (lambda _, x: x + len(x[0].unique()), "unique"),
        (lambda _, x: _ATTEND(_nested(x), _nested(x), _nested(x)), "of nested tensors"),
    ],
    ids=["item", "if", "in", "array", "mask", "nonzero", "unique", "nested"],
)
def test_data_dependence_names_the_line(forward: Any, operation: str) -> None:
    line = forward.__code__.co_firstlineno
    with pytest.raises(UserFileError) as error:
        trace_workload(workload(build_model=lambda: Mlp(forward)))
    assert operation in error.value.message
    assert f"{Path(__file__).name}:{line}" in error.value.message
    assert error.value.fix


def _logged(use: Callable[[Any, torch.Tensor], Any]) -> Callable[[nn.Module, Any], torch.Tensor]:
    def compute_loss(model: nn.Module, batch: Any) -> torch.Tensor:
        loss = compute_mlp_loss(model, batch)
        value = loss.item()
        used = use(value, loss)
        return used if isinstance(used, torch.Tensor) else loss

    return compute_loss


def test_a_value_that_is_printed_or_logged_changes_nothing_but_a_note() -> None:
    said: list[str] = []

    def use(value: Any, loss: torch.Tensor) -> None:
        mean = (0.9 * value + value / 2 - 1) ** 2
        said.append(f"{value:.3f} {value} {mean:6.2f} {round(value, 2)} {-mean!r}")
        if not math.isfinite(value):
            raise ArithmeticError("a guard that must not stop a trace")

    plain = trace_workload(
        workload(
            path=Path(__file__),
        ),
        numerics=["fp32"],
    )
    logged = trace_workload(
        workload(path=Path(__file__), compute_loss=_logged(use)), numerics=["fp32"]
    )
    assert set(said) == {"nan nan    nan nan nan"}
    assert logged.model_copy(update={"notes": ()}) == plain
    (note,) = logged.notes
    line = _logged.__code__.co_firstlineno + 3
    assert note.startswith(f"{Path(__file__).name}:{line}, in compute_loss reads a value")
    assert "wait for the device is not in the step time" in note


@pytest.mark.parametrize(
    ("use", "how"),
    [
        (lambda value, loss: loss if value > 3 else loss * 2, "in a comparison"),
        (lambda value, loss: loss if value else loss * 2, "as a condition"),
        (lambda value, loss: range(value), "as a whole number"),
        (lambda value, loss: int(value), "as a whole number"),
        (lambda value, loss: round(value), "as a whole number"),
        (lambda value, loss: float(value), "as a float"),
        (lambda value, loss: loss / value, "in div"),
        (lambda value, loss: value * loss, "in mul"),
        (lambda value, loss: loss.expand(2)[: value / 2].sum(), "as a whole number"),
        (lambda value, loss: torch.zeros(2, value), "in zeros"),
        (lambda value, loss: torch.stack([loss, torch.tensor([value])[0]]), "in tensor"),
        (lambda value, loss: F.dropout(loss, p=value), "in dropout"),
    ],
)
def test_a_value_that_decides_something_names_the_line(use: Any, how: str) -> None:
    with pytest.raises(UserFileError) as error:
        trace_workload(workload(compute_loss=_logged(use)))
    assert f"Tensor.item, used {how}, read at " in error.value.message
    assert f"{Path(__file__).name}:{use.__code__.co_firstlineno}" in error.value.message
    assert ".detach() instead of .item()" in (error.value.fix or "")


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (lambda model, batch: model(batch[0]), "shape"),
        (lambda model, batch: 3.0, "float"),
        (lambda model, batch: model(batch[0]).detach().sum(), "no trainable parameter"),
        (lambda model, batch: batch[0].requires_grad_().sum(), "gradient"),
    ],
    ids=["vector", "number", "detached", "elsewhere"],
)
def test_a_loss_that_trains_nothing_is_an_error(loss: Any, message: str) -> None:
    with pytest.raises(UserFileError, match=message):
        trace_workload(workload(compute_loss=loss))


def test_a_frozen_model_is_an_error() -> None:
    with pytest.raises(UserFileError, match="no trainable parameter"):
        trace_workload(workload(build_model=lambda: Mlp().requires_grad_(False)))


def test_other_operations_at_another_batch_size_are_an_error() -> None:
    def forward(_model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        for _ in range(x.shape[0]):
            x = x + 1
        return x

    place = f"test_untraceable.py:{forward.__code__.co_firstlineno + 1}"
    with pytest.raises(UserFileError, match="another batch size") as error:
        trace_workload(workload(build_model=lambda: Mlp(forward)))
    assert f"in the loop at {place})" in str(error.value)


def test_the_loop_whose_turns_are_samples_is_told_among_others() -> None:
    def forward(_model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            x = x + sum(one.exp().mean() for one in x.unbind())
        return x

    place = f"test_untraceable.py:{forward.__code__.co_firstlineno + 2}"
    with pytest.raises(UserFileError, match="another batch size") as error:
        trace_workload(workload(build_model=lambda: Mlp(forward)))
    assert f"in the loop at {place})" in str(error.value)


def test_a_difference_without_a_loop_names_none() -> None:
    def forward(_model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return x.exp() if x.shape[0] in (2, 4, 8) else x

    with pytest.raises(UserFileError, match="another batch size") as error:
        trace_workload(workload(build_model=lambda: Mlp(forward)))
    assert "in the loop" not in str(error.value)


def test_micro_batches_that_fail_are_told_where_others_do_not() -> None:
    def forward(_model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return x.view(-1, 4, x.shape[1]).flatten(0, 1)  # As the groups of a discriminator.

    profile = trace_workload(workload(build_model=lambda: Mlp(forward)))
    assert any(
        "a step of some micro-batches fails (of 2, 3, 4, 6: " in note
        and "it was traced with 8 and 16 samples" in note
        for note in profile.notes
    )


def test_another_difference_is_told_before_a_failure_at_another_size() -> None:
    def forward(_model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] < 8:
            raise ValueError("too few")
        for _ in range(x.shape[0]):
            x = x + 1
        return x

    with pytest.raises(UserFileError, match="another batch size") as error:
        trace_workload(workload(build_model=lambda: Mlp(forward)))
    assert "a Python loop over the samples of a batch" in (error.value.fix or "")


def test_an_error_of_the_model_is_passed_on() -> None:
    def forward(_: nn.Module, x: torch.Tensor) -> torch.Tensor:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        trace_workload(workload(build_model=lambda: Mlp(forward)))


def test_small_tables_made_on_the_host_have_values() -> None:
    def build_model() -> nn.Module:
        rates = [rate.item() for rate in torch.linspace(0, 0.5, 3)]
        return nn.Sequential(nn.Linear(WIDTH, 4), *(nn.Dropout(rate) for rate in rates))

    assert trace_workload(workload(build_model=build_model)).parameters == WIDTH * 4 + 4


def test_what_the_first_step_makes_and_keeps_is_no_difference() -> None:
    class Caching(Mlp):
        table: torch.Tensor | None = None

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.table is None:
                self.table = torch.ones(WIDTH, device=x.device) * 2
            return super().forward(x * self.table)

    assert trace_workload(workload(build_model=Caching)).parameters > 0


def test_an_optimizer_over_lists_is_traced_as_if_torch_had_run_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    adam = workload(build_optimizer=lambda parameters: torch.optim.AdamW(parameters, foreach=True))
    skips: list[bool] = []

    def never(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        skips.append(only_writes(func, args, kwargs))
        return False

    found = trace_workload(adam)
    only_writes = meta.only_writes
    for module in (meta, recorder):
        monkeypatch.setattr(module, "only_writes", never)
    assert trace_workload(adam).model_dump_json() == found.model_dump_json()
    assert any(skips)


def test_lists_that_do_not_match_are_refused_as_torch_does() -> None:
    class Wrong(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:
            weights = [one for group in self.param_groups for one in group["params"]]
            with torch.no_grad():
                torch.ops.aten._foreach_add_.List(
                    weights, [torch.zeros(3, device=one.device) for one in weights]
                )

    with pytest.raises((UserFileError, RuntimeError, ValueError), match="size|shape|broadcast"):
        trace_workload(workload(build_optimizer=lambda parameters: Wrong(parameters, lr=0.1)))


def test_every_recorded_step_is_told_with_its_operations() -> None:
    told: list[tuple[str, int]] = []
    profile = trace_workload(
        workload(),
        numerics=["fp32", "amp16"],
        on_step=lambda numerics, operations: told.append((numerics, operations)),
    )
    assert [numerics for numerics, _ in told] == ["fp32", "fp32", "amp16", "amp16"]
    # One past the last operation ends the step; the larger batch runs without the optimizer.
    assert told[0][1] == profile.step("fp32").memory.end_tick - 1 > told[1][1]
