"""Tax: one line of a cost, and every sum exact to the cent."""

from decimal import ROUND_HALF_EVEN, Decimal

from hypothesis import given
from hypothesis import strategies as st

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.planner.cost.launch_cost import launch_cost
from gpuplan.planner.cost.whole_job import whole_job
from gpuplan.planner.plan.plan import Estimated

PROVIDERS = load_catalogue().providers
CENT = Decimal("0.01")


@given(
    training_s=st.floats(1, 1e8),
    nodes=st.integers(1, 64),
    listed=st.decimals("0.01", "200", places=4),
    discount=st.decimals(0, "99.9", places=1),
    tax=st.decimals(0, 100, places=2),
    provider=st.sampled_from(sorted(PROVIDERS)),
)
def test_discounts_and_taxes_sum_to_the_cent(
    training_s: float, nodes: int, listed: Decimal, discount: Decimal, tax: Decimal, provider: str
) -> None:
    price = listed * (100 - discount) / 100
    step = Estimated(
        value=training_s, low=0.9 * training_s, high=1.2 * training_s, basis="analytic"
    )

    def cost(percent: Decimal | None):
        return launch_cost(
            step,
            nodes=nodes,
            usd_per_hour=price,
            dearest_usd_per_hour=price,
            billing=PROVIDERS[provider],
            tax_percent=percent,
        )

    net, gross = cost(None), cost(tax)
    assert net.usd_expected is not None
    due = (net.usd_expected * tax / 100).quantize(CENT, ROUND_HALF_EVEN)
    assert gross.usd_expected == net.usd_expected + due
    assert gross.usd_expected == sum(line.usd for line in gross.lines)
    assert all(line.usd == line.usd.quantize(CENT) for line in gross.lines)
    assert gross.lines[: len(net.lines)] == net.lines
    assert [line.name for line in gross.lines[len(net.lines) :]] == (["tax"] if tax else [])
    job = whole_job(
        step,
        nodes=nodes,
        usd_per_hour=price,
        spot_usd_per_hour=price,
        billing=PROVIDERS[provider],
        tax_percent=tax,
    ).whole
    assert job.usd == job.spot_usd == gross.usd_expected
    assert gross.usd_worst is not None and gross.usd_high is not None
    assert gross.usd_worst >= gross.usd_high


def test_no_tax_is_counted_that_nobody_stated() -> None:
    step = Estimated(value=3600.0, low=3600.0, high=3600.0, basis="analytic")
    cost = launch_cost(
        step, nodes=1, usd_per_hour=Decimal(3), dearest_usd_per_hour=Decimal(3), billing=None
    )
    assert "tax" not in [line.name for line in cost.lines]
