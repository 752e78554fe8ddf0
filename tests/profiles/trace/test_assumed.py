"""Steps that depend on the values of tensors: checks that pass, and what the user states."""

import dataclasses
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from gpuplan.catalog.errors import UserFileError
from gpuplan.profiles.profile import Kernel, Profile
from gpuplan.profiles.trace.trace import trace_workload
from gpuplan.profiles.user_model.assumptions import assumed_by_options, parse_assumptions
from gpuplan.profiles.user_model.workload import Workload

pytestmark = pytest.mark.slow

HERE = Path(__file__)
ROWS, WIDTH = 10, 16
Function = Callable[[torch.Tensor], torch.Tensor]


class Rows(nn.Module):
    """Multiplies what a function makes of the batch, [batch, rows, width], by a weight."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.layer = nn.Linear(WIDTH, 4)
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(self.function(self.first(x))).sum()


def workload(function: Function) -> Workload:
    return Workload(
        name="rows",
        path=HERE,
        build_model=lambda: Rows(function),
        make_batch=lambda size: (torch.randn(size, ROWS, WIDTH),),
        compute_loss=lambda model, batch: model(*batch),
        build_optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    )


def traced(function: Function, assumed: Mapping[str, Any] | None = None) -> Profile:
    return trace_workload(
        workload(function), numerics=["fp32"], assumptions=parse_assumptions(assumed or {})
    )


def line_of(function: Any, offset: int = 0) -> str:
    """Return the line of a function as an option names it."""
    return f"{HERE.name}:{function.__code__.co_firstlineno + offset}"


def kernels(profile: Profile) -> list[Kernel]:
    step = profile.step("fp32")
    return [kernel for at in step.schedule for kernel in step.segments[at].kernels]


def forward_kernels(profile: Profile) -> list[Kernel]:
    step = profile.step("fp32")
    segments = (step.segments[at] for at in step.schedule)
    return [kernel for one in segments if one.phase == "forward" for kernel in one.kernels]


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


BRANCHES = [branches, branches_on_an_item, branches_on_equality, branches_on_membership]


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
    profile = traced(clamps_what_overflowed, {place: False})
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


# --- sizes ---------------------------------------------------------------------------------------


def by_mask(x: torch.Tensor) -> torch.Tensor:
    return x[x[..., 0] > 0]


def by_mask_of_samples(x: torch.Tensor) -> torch.Tensor:
    return x[x[:, 0, 0] > 0]


def by_mask_behind_a_slice(x: torch.Tensor) -> torch.Tensor:
    return x.flatten(0, 1).t()[:, x[..., 0].flatten() > 0].t()


def by_nonzero(x: torch.Tensor) -> torch.Tensor:
    return x.flatten(0, 1)[x[..., 0].flatten().nonzero().squeeze(1)]


def by_where(x: torch.Tensor) -> torch.Tensor:
    return x[torch.where(x[..., 0] > 0)]


def by_masked_select(x: torch.Tensor) -> torch.Tensor:
    return x.masked_select(x[..., :1] > 0).view(-1, WIDTH)


def by_unique(x: torch.Tensor) -> torch.Tensor:
    return torch.unique(x[..., 0].flatten().long())[:, None] * x[0, 0]


def by_consecutive(x: torch.Tensor) -> torch.Tensor:
    return torch.unique_consecutive(x[..., 0].flatten().long())[:, None] * x[0, 0]


def by_bincount(x: torch.Tensor) -> torch.Tensor:
    return torch.bincount(x[..., 0].flatten().long())[:, None] * x[0, 0]


def by_repeats(x: torch.Tensor) -> torch.Tensor:
    return torch.repeat_interleave(x.flatten(0, 1), x[..., 0].flatten().long(), dim=0)


SELECTS = [
    by_mask, by_mask_behind_a_slice, by_nonzero, by_where, by_masked_select, by_unique,
    by_consecutive, by_bincount, by_repeats,
]  # fmt: skip


def rows_multiplied(profile: Profile) -> tuple[float, float]:
    """Return how many rows the last layer multiplies: those of every batch, and of a sample."""
    (rows,) = {k.dims["m"] for k in kernels(profile) if k.linear and k.dims["n"].base == 4}
    return rows.base, rows.per_sample


@pytest.mark.parametrize("function", SELECTS)
def test_a_size_is_as_stated(function: Function) -> None:
    place = line_of(function, 1)
    # What is selected as single values comes in rows of WIDTH.
    each = WIDTH if function is by_masked_select else 1
    assert rows_multiplied(traced(function, {place: 7 * each})) == (7, 0)
    assert rows_multiplied(traced(function, {place: f"{3 * each}/sample"})) == (0, 3)
    assert rows_multiplied(traced(function, {place: "50%"})) == (0, ROWS / 2)


def test_a_mask_of_samples_is_a_share_of_samples() -> None:
    profile = traced(by_mask_of_samples, {line_of(by_mask_of_samples, 1): "100%"})
    # Products of every row of the samples that are left: all of them.
    assert profile.flops == traced(plain).flops
    assert profile.notes == (
        f"assumed: {line_of(by_mask_of_samples, 1)} finds 100% (--assume-size)",
    )


@pytest.mark.parametrize("function", SELECTS)
def test_a_size_that_nobody_states_names_an_option_that_works(function: Function) -> None:
    with pytest.raises(UserFileError) as error:
        traced(function)
    found = re.search(r"--assume-size (\S+)=64 ", error.value.fix or "")
    assert found and found[1] == line_of(function, 1)
    assert "50% of the values that are looked at" in (error.value.fix or "")
    stated = assumed_by_options([], [], [f"{found[1]}=64"])
    assert traced(function, stated).notes


def test_a_mask_costs_what_its_rows_do() -> None:
    """On a GPU an indexing with a mask is `nonzero`, then an indexing with what it found."""

    def by_rows(x: torch.Tensor) -> torch.Tensor:
        rows = (x[..., 0] > 0).nonzero().unbind(1)
        return x[rows]

    masked = traced(by_mask, {line_of(by_mask, 1): "50%"})
    by_hand = traced(by_rows, {line_of(by_rows, 1): "50%"})
    assert forward_kernels(masked) == forward_kernels(by_hand)


def whole_number(x: torch.Tensor) -> torch.Tensor:
    longest = x[..., 0].argmax(1).max().item()
    return x[:, : int(longest)]


def whole_number_of_a_tensor(x: torch.Tensor) -> torch.Tensor:
    longest = x[..., 0].argmax(1).max()
    return x[:, : int(longest)]


@pytest.mark.parametrize("function", [whole_number, whole_number_of_a_tensor])
def test_a_whole_number_is_as_stated(function: Function) -> None:
    profile = traced(function, {line_of(function, 2): 4})
    assert rows_multiplied(profile) == (0, 4)
    with pytest.raises(UserFileError) as error:
        traced(function)
    assert f"--assume-size {line_of(function, 2)}=64" in (error.value.fix or "")


def test_a_share_says_nothing_of_a_whole_number() -> None:
    with pytest.raises(UserFileError, match="needs the values of a tensor"):
        traced(whole_number, {line_of(whole_number, 2): "50%"})


class GraphLayer(nn.Module):
    """A layer of a graph network as they are usually written: no loops to a node itself, then one.

    Edges are [2, edges], nodes [nodes, width].
    """

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, nodes: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        edges = edges[:, edges[0] != edges[1]]
        own = torch.arange(nodes.shape[0], device=nodes.device).expand(2, -1)
        source, target = torch.cat([edges, own], dim=1)
        sent = self.layer(nodes)[source]
        return torch.zeros_like(nodes).index_add(0, target, sent).sum()


def test_a_graph_network_is_traced_at_a_stated_number_of_edges() -> None:
    first = GraphLayer.forward
    graphs = dataclasses.replace(
        workload(plain),
        build_model=GraphLayer,
        make_batch=lambda size: (
            torch.randn(8 * size, WIDTH), torch.zeros(2, 100 * size, dtype=torch.long)
        ),
    )  # fmt: skip
    with pytest.raises(UserFileError, match="indexing with a mask"):
        trace_workload(graphs, numerics=["fp32"])
    stated = parse_assumptions({line_of(first, 1): "90%"})
    profile = trace_workload(graphs, numerics=["fp32"], assumptions=stated)
    (gathered,) = [k for k in kernels(profile) if k.op == "index" and not k.backward][-1:]
    assert gathered.bytes_written.per_sample == (90 + 8) * WIDTH * 4
    assert len(profile.notes) == 1
