"""What a run recomputed that only fits with recompute."""

from collections.abc import Callable

import pytest

from gpuplan.catalog.vocabulary import Recompute
from gpuplan.planner.plan.layout import Layout
from gpuplan.planner.plan.setup import Setup
from gpuplan.planner.validation.unstated_recompute import recompute_to_fit


def setup(recompute: Recompute = "none") -> Setup:
    return Setup(layout=Layout(), precision="bf16-amp", micro_batch=8, recompute=recompute)


def room_for(*policies: Recompute) -> Callable[[Setup], bool]:
    return lambda asked: asked.recompute in policies


@pytest.mark.parametrize(
    ("stated", "holds", "found"),
    [
        (setup(), room_for("none", "full"), None),
        (setup(), room_for("full"), setup("full")),
        # What never fits stays as it is, and so does what recomputes something.
        (setup(), room_for(), None),
        (setup("selective"), room_for("full"), None),
    ],
)
def test_every_block_where_nothing_else_fits(
    stated: Setup, holds: Callable[[Setup], bool], found: Setup | None
) -> None:
    assert recompute_to_fit(stated, holds) == found
