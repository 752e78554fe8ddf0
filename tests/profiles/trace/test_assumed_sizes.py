"""Sizes that depend on the values of tensors: masks, indices, numbers, as the user states them."""

import dataclasses
import re

import pytest
import torch
from row_functions import (
    ROWS,
    WIDTH,
    Function,
    forward_kernels,
    kernels,
    line_of,
    traced,
    workload,
)
from torch import nn

from gpuplan.catalog.errors import UserFileError
from gpuplan.profiles.profile import Profile
from gpuplan.profiles.trace.trace import trace_workload
from gpuplan.profiles.user_model.assumptions import assumed_by_options, parse_assumptions

pytestmark = pytest.mark.slow


def plain(x: torch.Tensor) -> torch.Tensor:
    return x


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


def number_that_a_factory_takes(x: torch.Tensor) -> torch.Tensor:
    longest = x[..., 0].argmax(1).max().item()
    return x[:, torch.arange(longest, device=x.device)]


def test_a_number_that_torch_takes_is_stated_where_it_is_read() -> None:
    with pytest.raises(UserFileError) as error:
        traced(number_that_a_factory_takes)
    read = line_of(number_that_a_factory_takes, 1)
    assert f"used in arange, read at {read}, needs the values" in error.value.message
    assert f"--assume-size {read}=64" in (error.value.fix or "")
    assert rows_multiplied(traced(number_that_a_factory_takes, {read: 4})) == (0, 4)


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
