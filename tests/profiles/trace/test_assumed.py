"""Steps that depend on the values of tensors: checks that pass, and what the user states."""

import dataclasses
from pathlib import Path

import pytest
import torch
from row_functions import (
    ROWS,
    WIDTH,
    Function,
    line_of,
    traced,
    workload,
)
from torch import nn

from gpuplan.catalog.errors import UserFileError
from gpuplan.profiles.profile import Profile
from gpuplan.profiles.trace.trace import trace_workload
from gpuplan.profiles.user_model.assumptions import parse_assumptions

pytestmark = pytest.mark.slow

HERE = Path(__file__)


def plain(x: torch.Tensor) -> torch.Tensor:
    return x


# --- conditions ----------------------------------------------------------------------------------


def branches(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        return x @ x.transpose(1, 2) @ x
    return x


def branches_on_an_item(x: torch.Tensor) -> torch.Tensor:
    if x.sum().item() > 0:
        return x @ x.transpose(1, 2) @ x
    return x


def branches_on_equality(x: torch.Tensor) -> torch.Tensor:
    if torch.equal(x, x):
        return x @ x.transpose(1, 2) @ x
    return x


def branches_on_membership(x: torch.Tensor) -> torch.Tensor:
    if 0 in x[:, [-1, 0]]:
        return x @ x.transpose(1, 2) @ x
    return x


def branches_on_a_negation(x: torch.Tensor) -> torch.Tensor:
    if not torch.any(x > 0):
        return x @ x.transpose(1, 2) @ x
    return x


BRANCHES = [
    branches,
    branches_on_an_item,
    branches_on_equality,
    branches_on_membership,
    branches_on_a_negation,
]


def acting(x: torch.Tensor) -> torch.Tensor:
    """Return the log-probabilities of actions as an agent's policy has them."""
    actions = x.argmax(-1)
    policy = torch.distributions.Categorical(logits=x)
    noise = torch.distributions.Normal(x, x.exp())
    return x * (policy.log_prob(actions) + policy.entropy())[..., None] + noise.rsample()


def test_the_checks_of_a_distribution_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of its parameters, and of what it is asked the probability of."""
    # torch.compile turns them off for the whole process, which other tests may share.
    monkeypatch.setattr(torch.distributions.Distribution, "_validate_args", True)
    checks = "checks values and stops the step where the check fails: the trace takes it as passed"
    asked = [line_of(acting, offset) for offset in (3, 4, 5)]
    assert [note for note in traced(acting).notes if checks in note] == [
        f"{place}, in acting {checks}" for place in asked
    ]


@pytest.mark.parametrize("function", BRANCHES)
def test_a_condition_comes_out_as_stated(function: Function) -> None:
    place = line_of(function, 1)
    taken = traced(function, {place: True})
    other = traced(function, {place: False})
    assert other.flops == traced(plain).flops
    assert taken.flops.per_sample > other.flops.per_sample
    assert f"assumed: the condition at {place} is true (--assume-true)" in taken.notes
    assert f"assumed: the condition at {place} is false (--assume-false)" in other.notes


@pytest.mark.parametrize("function", BRANCHES)
def test_a_condition_that_nobody_states_names_the_options(function: Function) -> None:
    with pytest.raises(UserFileError, match="needs the values of a tensor") as error:
        traced(function)
    fix = error.value.fix or ""
    place = line_of(function, 1)
    assert f"--assume-true {place} or --assume-false {place}." in fix


def test_a_size_is_no_answer_to_a_condition() -> None:
    with pytest.raises(UserFileError, match="needs the values of a tensor"):
        traced(branches, {line_of(branches, 1): 3})


def test_what_is_stated_and_never_asked_is_said() -> None:
    profile = traced(plain, {"model.py:3": True, "model.py:4": "50%"})
    assert profile.notes == (
        "--assume-true model.py:3 changed nothing: no such value is read at that line",
        "--assume-size model.py:4=50% changed nothing: no such value is read at that line",
    )
    assert profile.model_copy(update={"notes": ()}) == traced(plain)


# --- checks --------------------------------------------------------------------------------------


def raises_if_any(x: torch.Tensor) -> torch.Tensor:
    if (x != x).any():
        message = "not a number"
        raise ValueError(message)
    return x


def raises_unless_all(x: torch.Tensor) -> torch.Tensor:
    if not torch.isfinite(x).all():
        raise ValueError("not finite")
    return x


def raises_if_either(x: torch.Tensor) -> torch.Tensor:
    if x.max() > 1e6 or x.min() < -1e6 or x.isnan().any().item():
        raise ValueError("out of range")
    return x


def asserts(x: torch.Tensor) -> torch.Tensor:
    assert x.max() < 1e6, "out of range"
    return x


def asserts_over_lines(x: torch.Tensor) -> torch.Tensor:
    assert (
        torch.isfinite(x).all()
        and x.max() < 1e6
    ), "out of range"  # fmt: skip
    return x


def asserts_by_torch(x: torch.Tensor) -> torch.Tensor:
    torch._assert((x < 1e6).all(), "out of range")
    return x


def reports_and_asserts_by_torch(x: torch.Tensor) -> torch.Tensor:
    if (x > 1e6).any():
        bad = torch.where(x > 1e6)[0][0]
        torch._assert(False, f"out of range: {bad}")
    return x


CHECKS = [
    raises_if_any, raises_unless_all, raises_if_either, asserts, asserts_over_lines,
    asserts_by_torch, reports_and_asserts_by_torch,
]  # fmt: skip


@pytest.mark.parametrize("function", CHECKS)
def test_a_check_of_values_passes_and_is_said(function: Function) -> None:
    profile = traced(function)
    assert profile.flops == traced(plain).flops
    assert any("the trace takes it as passed" in note for note in profile.notes)
    assert all(HERE.name in note for note in profile.notes)


def test_the_user_knows_better_than_a_check() -> None:
    with pytest.raises(ValueError, match="not a number"):
        traced(raises_if_any, {line_of(raises_if_any, 1): True})


def clamps_what_overflowed(x: torch.Tensor) -> torch.Tensor:
    if not torch.isfinite(x).all():
        x = x @ x.transpose(1, 2) @ x
    return x


def clamps_in_one_dtype(x: torch.Tensor) -> torch.Tensor:
    if x.dtype == torch.float32 and (torch.isinf(x).any() or torch.isnan(x).any()):
        x = x @ x.transpose(1, 2) @ x
    return x


def chooses_what_is_finite(x: torch.Tensor) -> torch.Tensor:
    return x if torch.isfinite(x).all() else x @ x.transpose(1, 2) @ x


@pytest.mark.parametrize(
    "function", [clamps_what_overflowed, clamps_in_one_dtype, chooses_what_is_finite]
)
def test_values_are_taken_to_be_finite_and_that_is_said(function: Function) -> None:
    profile = traced(function)
    assert profile.flops == traced(plain).flops
    assert profile.notes == (
        f"{line_of(function, 1)} asks whether values are finite: the trace takes them to be",
    )


def test_the_user_knows_better_whether_values_are_finite() -> None:
    place = line_of(clamps_what_overflowed, 1)
    profile = traced(clamps_what_overflowed, {place: True})
    assert profile.flops.per_sample > traced(plain).flops.per_sample


class Masked(nn.Module):
    """An encoder of torch's own under a mask, [rows, rows], that is moved to the device."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 32, batch_first=True)
        self.net = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(ROWS).cuda()
        return self.net(x, mask=mask).sum()


def attention_of(profile: Profile) -> set[str]:
    step = profile.step("amp16")
    found = (kernel for at in step.schedule for kernel in step.segments[at].kernels)
    return {one.op.removesuffix("_backward") for one in found if one.kind == "attention"}


def test_a_mask_of_a_transformer_is_taken_as_causal_and_that_is_said() -> None:
    encoder = dataclasses.replace(workload(plain), build_model=Masked)
    line = Masked.forward.__code__.co_firstlineno + 2
    place = f"{HERE.name}:{line}"
    causal = trace_workload(encoder, numerics=["amp16"])
    stated = parse_assumptions({place: False})
    other = trace_workload(encoder, numerics=["amp16"], assumptions=stated)
    assert attention_of(causal) == {"_scaled_dot_product_flash_attention"}
    assert attention_of(other) == {"_scaled_dot_product_efficient_attention"}
    assert causal.notes == (
        f"{place}, in forward passes a mask to nn.Transformer: the trace takes it as causal",
    )
    assumed, slower = other.notes
    assert assumed == f"assumed: the condition at {place} is false (--assume-false)"
    assert slower.startswith(f"{place}, in forward gives attention a mask, which rules the flash")


def finite_and_another(x: torch.Tensor) -> torch.Tensor:
    if not torch.isfinite(x).all() or x.any():
        x = x + 1
    return x


def some_finite(x: torch.Tensor) -> torch.Tensor:
    if torch.isfinite(x).any():
        x = x + 1
    return x


def gives_up(x: torch.Tensor) -> torch.Tensor:
    if x.max() > 1e6:
        x = x / 2
    else:
        raise ValueError("small")
    return x


def skips(x: torch.Tensor) -> torch.Tensor:
    for _ in range(2):
        if x.any():
            continue
        x = x + 1
    return x


def either_way(x: torch.Tensor) -> torch.Tensor:
    if not x.any() or x.isnan().any():
        raise ValueError("either way")
    return x


@pytest.mark.parametrize("function", [gives_up, skips, either_way, finite_and_another, some_finite])
def test_what_is_no_plain_check_is_refused(function: Function) -> None:
    with pytest.raises(UserFileError, match="needs the values of a tensor"):
        traced(function)
