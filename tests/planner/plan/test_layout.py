"""Layouts: the one-line form and its laws."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuplan.catalog.errors import UsageError
from gpuplan.planner.plan.layout import Layout, parse_layout


@pytest.mark.parametrize(
    ("text", "data", "shard", "stage", "accelerators"),
    [
        ("dp16", 16, 1, 0, 16),
        ("dp16.zero1", 16, 16, 1, 16),
        ("fsdp16", 16, 16, 3, 16),
        ("hsdp2x8", 16, 8, 3, 16),
        ("fsdp8.tp4.sp.pp2.vpp2", 8, 8, 3, 64),
        ("fsdp4.cp2", 4, 8, 3, 8),
        ("dp32.zero2.shard8", 32, 8, 2, 32),
    ],
)
def test_forms(text: str, data: int, shard: int, stage: int, accelerators: int) -> None:
    layout = parse_layout(text)
    assert (layout.data, layout.shard, layout.zero_stage) == (data, shard, stage)
    assert layout.accelerators == accelerators
    assert str(layout) == text


@pytest.mark.parametrize(
    "text", ["", "16", "tp4", "fsdp", "dp16.zero4", "fsdp16.shard3", "dp0", "dp8.xx2", "dp-4"]
)
def test_nonsense_says_the_form(text: str) -> None:
    with pytest.raises(UsageError, match="dp16, dp16.zero1"):
        parse_layout(text)


powers = st.sampled_from([1, 2, 4, 8])


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    stage = draw(st.integers(0, 3))
    data, context = draw(powers), draw(powers)
    divisors = [d for d in (1, 2, 4, 8, 16, 32, 64) if (data * context) % d == 0]
    return Layout(
        data=data,
        shard=draw(st.sampled_from(divisors)) if stage else 1,
        zero_stage=stage,
        tensor=draw(powers),
        pipeline=draw(powers),
        virtual_stages=draw(powers),
        context=context,
        expert=draw(st.sampled_from([d for d in divisors])),
        sequence_parallel=draw(st.booleans()),
    )


@given(layouts())
def test_the_form_is_read_back(layout: Layout) -> None:
    assert parse_layout(str(layout)) == layout
