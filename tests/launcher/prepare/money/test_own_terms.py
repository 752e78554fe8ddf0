"""A launch at the user's own terms: what the screen, the guard and the account count."""

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from answers import make_estimate, make_offer, make_plan, make_run
from fake_engine import Clock, FakeEngine
from launch_records import make_context

from gpuplan import api
from gpuplan.catalog.errors import LimitError, PriceError, UsageError
from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.cli.render.runs.launch import render_launch
from gpuplan.launcher.guard.decisions.spending import open_account
from gpuplan.launcher.guard.decisions.verdicts import Reading, over_limit
from gpuplan.launcher.guard.orders import Orders
from gpuplan.launcher.lifecycle.transitions import ask, begin, wait_started
from gpuplan.launcher.prepare.intent import held_to_reservation, intent, reserved_usd
from gpuplan.launcher.prepare.prepared import Prepared, write
from gpuplan.launcher.prepare.request import GuardRequest, LaunchRequest, parse_outputs
from gpuplan.launcher.skypilot.prices import price_differences
from gpuplan.launcher.skypilot.reservations import read_sky_config
from gpuplan.launcher.store.accounting import closing_line, spent_usd
from gpuplan.launcher.store.estimates import Store
from gpuplan.launcher.store.origin import origin_of
from gpuplan.launcher.store.spending_limits import SpendingLimits
from gpuplan.planner.plan.answer.answer_parts import CatalogueFacts
from gpuplan.planner.plan.payment import CommitmentUse
from gpuplan.planner.plan.plan import ChosenOffer, Plan

MODEL = "def build_model(): ...\ndef build_dataset(): ...\n"
BOOK = """
discounts: [{percent: 50, provider: aws}, {percent: 20, provider: aws, purchase: spot}]
reserved:
  - {provider: aws, instance: p4d.24xlarge, region: us-east-1, usd_per_hour: 9.5,
     upfront_usd: 0, term_years: 1, count: 4}
tax_percent: 10
"""
REQUEST = LaunchRequest(outputs=parse_outputs("s3://bucket/runs"))
CATALOGUE = load_catalogue()
LIST = next(
    one
    for one in CATALOGUE.offers
    if (one.provider, one.region, one.instance_type) == ("aws", "us-east-1", "p4d.24xlarge")
)
assert LIST.on_demand_usd_per_hour is not None
LIST_USD = LIST.on_demand_usd_per_hour


@pytest.fixture
def book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(MODEL)
    Path("book.yaml").write_text(BOOK)
    return Path("book.yaml")


def kept(
    offer: ChosenOffer | None = None,
    *,
    pricebook: Path | None = None,
    nodes: int = 1,
    **changes: Any,
) -> Plan:
    """Return a plan, by default at the list price, that the store keeps."""
    plan = make_plan(
        run=make_run(),
        runnable=True,
        nodes=nodes,
        offer=offer or make_offer(usd_per_hour=float(LIST_USD)),
        **changes,
    )
    answer = make_estimate(
        plan,
        catalog=CatalogueFacts(snapshot_date=CATALOGUE.snapshot_date, offers=1),
        generated_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    origin = origin_of(
        api.model("net.py"), api.Question(), folder=Path.cwd(), offers=None, pricebook=pricebook
    )
    Store().keep(answer, inputs_hash="a", origin=origin)
    return plan


def launched(plan: Plan, book: Path | None = None, request: LaunchRequest = REQUEST) -> Prepared:
    return api.launch(plan.id, request, pricebook=book)


def test_a_pricebook_takes_the_place_of_the_plans_price(book: Path) -> None:
    plan = kept()
    before, after = launched(plan), launched(plan, book)
    (place,) = after.places
    assert place.usd_per_hour == pytest.approx(LIST_USD / 2)
    assert after.plan.id == plan.id
    assert after.plan.offer.list_usd_per_hour == pytest.approx(float(LIST_USD))
    assert before.cost.usd_expected is not None and after.cost.usd_expected is not None
    ratio = float(after.cost.usd_expected / before.cost.usd_expected)
    assert ratio == pytest.approx(0.5 * 1.1, rel=2e-3), "half, and a tenth of tax on it"
    assert after.cost.lines[-1].name == "tax"


def test_the_guard_the_limits_and_the_account_count_what_is_paid(
    book: Path, tmp_path: Path
) -> None:
    paid = float(LIST_USD) / 2 * 1.1
    limited = LaunchRequest(outputs=REQUEST.outputs, guard=GuardRequest(max_hours=500.0))
    prepared = launched(kept(), book, limited)
    assert prepared.orders.usd_per_hour == pytest.approx(paid)
    projection = prepared.orders.projection
    assert projection is not None and projection.low_usd is not None
    assert prepared.cost.usd_of_run is not None
    tail_usd = prepared.orders.tail_s / 3600 * paid
    assert projection.low_usd == pytest.approx(
        float(prepared.cost.usd_of_run[0]) + tail_usd, rel=1e-6
    )
    engine = FakeEngine(Clock())
    context = make_context(tmp_path, engine)
    record = intent(prepared, now=engine.clock)
    assert record.places[0].usd_per_hour == pytest.approx(Decimal(paid))
    Path(record.folder).mkdir(parents=True)
    (Path(record.folder) / "task.yaml").write_text(prepared.task.yaml)
    begun = begin(context, record, SpendingLimits(), spot=False)
    running = wait_started(context, ask(context, begun))
    assert running.last is not None
    assert running.last.usd_per_hour == pytest.approx(Decimal(paid))
    engine.clock.pass_s(36_000)
    began = running.last.began_at
    assert began is not None
    hours = (engine.clock() - began).total_seconds() / 3600
    assert float(spent_usd(running, now=engine.clock())) == pytest.approx(hours * paid, rel=1e-3)


def test_spot_and_other_regions_are_at_the_same_terms(book: Path) -> None:
    request = LaunchRequest(outputs=REQUEST.outputs, spot=True)
    (place,) = launched(kept(), book, request).places
    assert LIST.market_spot_usd_per_hour is not None
    assert place.usd_per_hour == LIST.market_spot_usd_per_hour * Decimal("0.8")
    assert (place.discount_percent, place.tax_percent) == (20, 10)


def test_a_plan_that_was_kept_with_a_pricebook_keeps_its_terms(book: Path) -> None:
    offer = make_offer(
        usd_per_hour=7.0, discount_percent=60.0, list_usd_per_hour=17.5, tax_percent=20.0
    )
    prepared = launched(kept(offer, pricebook=book))
    assert prepared.places[0].usd_per_hour == 7
    assert prepared.orders.usd_per_hour == pytest.approx(8.4)
    again = launched(kept(offer, pricebook=book), book)
    assert again.places[0].usd_per_hour == pytest.approx(LIST_USD / 2), (
        "one that is given goes first"
    )


def test_reserved_machines_cost_what_the_pricebook_says(book: Path) -> None:
    reserved = make_offer(
        purchase="reserved", term_years=1.0, price_basis="pricebook", usd_per_hour=12.0
    )
    (place,) = launched(kept(reserved), book).places
    assert (place.usd_per_hour, place.is_of_term) == (Decimal("9.5"), True)
    other = reserved.model_copy(update={"term_years": 3.0})
    with pytest.raises(PriceError, match=r"for 3 year\(s\), and the pricebook has no such price"):
        launched(kept(other), book)


def test_a_term_that_is_not_held_is_said_to_need_a_signature(book: Path) -> None:
    reserved = make_offer(
        purchase="reserved", term_years=1.0, price_basis="pricebook", usd_per_hour=12.0
    )
    said = "a term of 1 year, which has to be signed before this starts"
    book.write_text(BOOK.replace(", count: 4", ""))
    assert any(said in note for note in launched(kept(reserved), book).notes)
    assert not any("signed" in note for note in launched(kept(), book).notes)
    spot = LaunchRequest(outputs=REQUEST.outputs, spot=True)
    assert not any("signed" in note for note in launched(kept(reserved), book, spot).notes)


def held(book: Path, entry: str, **changes: object) -> Prepared:
    """Return a launch on a machine that is held for a year at $9.50, by an entry with an id."""
    book.write_text(f"reserved:\n  - {{{entry}}}\n")
    term = make_offer(
        purchase="reserved", term_years=1.0, price_basis="pricebook", usd_per_hour=9.5
    ).model_copy(update=changes)
    return launched(kept(term), book)


HELD = (
    "provider: aws, instance: p4d.24xlarge, region: us-east-1, usd_per_hour: 8.5,"
    " upfront_usd: 8760, term_years: 1, count: 4, id: cr-0123456789abcdef0"
)


def test_a_reservation_that_is_held_is_launched_into_by_its_id(book: Path) -> None:
    prepared = held(book, HELD)
    config = {"aws": {"specific_reservations": ["cr-0123456789abcdef0"]}}
    # Calculator: $8.50 + $8,760 / 8,760 h.
    assert (prepared.places[0].usd_per_hour, prepared.answer().sky_config) == (
        Decimal("9.5"),
        config,
    )
    own = prepared.folder / "sky-config.yaml"
    assert f"--config {own} " in prepared.task.command
    task = write(prepared)
    assert own.is_file() and read_sky_config(task) == config
    assert any("cr-0123456789abcdef0" in note and "on demand" in note for note in prepared.notes)
    assert not any("signed" in note for note in prepared.notes)


def test_without_an_id_nothing_is_told_to_skypilot(book: Path) -> None:
    prepared = held(book, HELD.partition(", id:")[0])
    assert prepared.task.sky_config is None and "--config" not in prepared.task.command
    assert read_sky_config(write(prepared)) is None


def test_a_launch_elsewhere_or_on_spot_is_in_no_reservation(book: Path) -> None:
    book.write_text(f"reserved:\n  - {{{HELD}}}\n")
    term = make_offer(
        purchase="reserved", term_years=1.0, price_basis="pricebook", usd_per_hour=9.5
    )
    plan = kept(term)
    for request in (replace(REQUEST, spot=True), replace(REQUEST, regions=("us-west-2",))):
        assert launched(plan, book, request).task.sky_config is None
    assert launched(kept(), book).task.sky_config is None, "it is planned on demand"


def test_more_nodes_than_are_held_are_refused(book: Path) -> None:
    text = HELD.replace("count: 4", "count: 1")
    book.write_text(f"reserved:\n  - {{{text}}}\n")
    term = make_offer(
        purchase="reserved", term_years=1.0, price_basis="pricebook", usd_per_hour=9.5
    )
    with pytest.raises(UsageError, match="holds 1 of them, and the plan has 2"):
        launched(kept(term, nodes=2), book)


def test_a_plan_in_a_block_that_nobody_bought_is_refused(book: Path) -> None:
    book.write_text(f"reserved:\n  - {{{HELD}}}\n")
    block = make_offer(purchase="block", price_basis="pricebook", usd_per_hour=9.5)
    with pytest.raises(UsageError, match="paid by a capacity block") as refused:
        launched(kept(block), book)
    assert "--purchase reserved" in str(refused.value)


def test_skypilots_list_price_is_compared_less_the_users_discount(book: Path) -> None:
    prepared = launched(kept(), book)

    def differences(usd: Decimal) -> tuple[str, ...]:
        found = price_differences(
            prepared.task.config, prepared.plan, prepared.places, lambda _task: [usd]
        )
        return tuple(map(str, found))

    assert differences(LIST_USD) == ()
    (said,) = differences(LIST_USD * 2)
    assert "less your 50 %" in said and "(+100%)" in said
    term = make_offer(
        purchase="reserved", term_years=1.0, price_basis="pricebook", usd_per_hour=9.5
    )
    held = launched(kept(term), book)
    assert not price_differences(held.task.config, held.plan, held.places, lambda _task: [LIST_USD])


def test_a_pricebook_that_is_not_there_is_said_so(book: Path) -> None:
    with pytest.raises(UsageError, match=r"nowhere\.yaml"):
        launched(kept(), Path("nowhere.yaml"))


YEAR_USD = Decimal("91542.00")
"""By hand: 8,760 h at $9.50, and 10 % of tax."""


def of_term(*, counted: bool, held: int | None = None) -> Plan:
    """Return a plan at the price of a year, whose estimate counts all of it or this job's share."""
    use = CommitmentUse(
        term_years=1.0,
        terms=1,
        usd=YEAR_USD,
        used_share=0.0003,
        unused_usd=Decimal(91_500),
        unused_is_counted=counted,
        nodes_held=held,
    )
    offer = make_offer(
        purchase="committed", term_years=1.0, price_basis="pricebook", usd_per_hour=9.5
    )
    return kept(offer, commitment=use)


def screen(prepared: Prepared) -> list[str]:
    return [line.plain for line in render_launch(prepared)]


def test_a_term_that_is_bought_for_a_launch_is_counted_whole(book: Path) -> None:
    book.write_text(BOOK.replace(", count: 4", ""))
    prepared = launched(of_term(counted=True), book)
    cost = prepared.cost
    assert cost.usd_of_terms == cost.usd_expected == cost.usd_worst == YEAR_USD
    assert cost.usd_expected == sum(line.usd for line in cost.lines)
    assert any(line.name == "unused commitment" for line in cost.lines)
    assert reserved_usd(prepared) == YEAR_USD
    # It is said before the money, and the guard projects hours alone.
    said = screen(prepared)
    (place,) = [n for n, line in enumerate(said) if "1 year for $91,542.00" in line]
    assert "all of it is counted" in said[place] and "at worst" in said[place + 1]
    assert prepared.orders.projection is not None
    assert (prepared.orders.projection.high_usd or 0) < 100


def test_hours_of_a_launch_are_compared_with_hours_and_the_term_is_said(book: Path) -> None:
    """Its hours are accounted at the price of the term: beside all of it they were always below."""
    book.write_text(BOOK.replace(", count: 4", ""))
    prepared = launched(of_term(counted=True), book)
    record = intent(prepared, now=lambda: datetime(2026, 11, 22, 12, tzinfo=UTC))
    shared = launched(of_term(counted=False), book)
    assert record.usd_expected == shared.cost.usd_expected
    assert (record.usd_low, record.usd_high) == (shared.cost.usd_low, shared.cost.usd_high)
    assert (record.usd_worst, record.reserved_usd) == (YEAR_USD, YEAR_USD)
    assert record.term_usd == YEAR_USD
    line = closing_line(record, now=datetime(2026, 11, 22, 13, tzinfo=UTC))
    assert (
        f"predicted ${record.usd_low:,.2f}–{record.usd_high:,.2f} of a term of $91,542.00" in line
    )  # noqa: RUF001


def test_a_term_that_other_jobs_share_is_paid_whole_at_worst(book: Path) -> None:
    book.write_text(BOOK.replace(", count: 4", ""))
    prepared = launched(of_term(counted=False), book)
    held_book = Path("held.yaml")
    held_book.write_text(BOOK)
    held = launched(of_term(counted=False), held_book)
    assert prepared.cost.usd_expected == held.cost.usd_expected
    assert (prepared.cost.usd_worst, reserved_usd(prepared)) == (YEAR_USD, YEAR_USD)
    assert held.cost.usd_worst is not None and held.cost.usd_worst < 100
    assert (held.cost.usd_of_terms, held.term) == (None, None)
    assert any("this job's share is expected" in line for line in screen(prepared))
    assert not any("to be signed" in line for line in screen(held))
    # So is one that was held when the plan was made.
    assert launched(of_term(counted=False, held=4), book).term is None


def test_a_cap_below_a_term_that_is_not_held_is_refused(book: Path) -> None:
    book.write_text(BOOK.replace(", count: 4", ""))
    for usd, is_refused in ((YEAR_USD - 1, True), (YEAR_USD, False)):
        request = replace(REQUEST, guard=GuardRequest(max_cost_usd=usd))
        for counted in (True, False):
            if is_refused:
                with pytest.raises(LimitError, match=r"The term .* costs \$91,542\.00"):
                    launched(of_term(counted=counted), book, request)
            else:
                launched(of_term(counted=counted), book, request)


def stopped_after_s(orders: Orders) -> float:
    """Return after how long a guard that sees nothing of a run ends it."""
    began_s = orders.requested_at_s
    account = open_account(orders, [], boot_s=began_s, now_s=began_s)

    def ends(seconds: float) -> bool:
        found = over_limit(orders, account, Reading(), paid_s=seconds, now_s=began_s + seconds)
        return found is not None

    low, high = 0.0, 1e9
    assert ends(high)
    while high - low > 0.01:
        middle = (low + high) / 2
        low, high = (low, middle) if ends(middle) else (middle, high)
    return high + orders.tail_s


def test_the_most_that_a_launch_may_cost_is_what_its_guard_stops_at(book: Path) -> None:
    """Of a block that was bought, by the hour; of a term, with its hours on demand after it."""
    block = held(book, HELD)
    worst = block.cost.usd_worst
    limited = held_to_reservation(block)
    assert worst is not None and reserved_usd(block) == worst
    seconds = stopped_after_s(limited.orders)
    assert seconds / 3600 * limited.orders.usd_per_hour == pytest.approx(float(worst), abs=0.01)
    assert seconds / 3600 == pytest.approx(block.cost.hours_worst, abs=0.01)

    book.write_text(BOOK.replace(", count: 4", "").replace("tax_percent: 10", ""))
    long = replace(REQUEST, steps=76_000_000)
    term = launched(of_term(counted=True), book, long)
    limited, worst = held_to_reservation(term), term.cost.usd_worst
    assert term.cost.usd_of_terms == Decimal("83220.00")
    hours = stopped_after_s(limited.orders) / 3600
    assert hours == pytest.approx(term.cost.hours_worst, abs=0.01) and hours > 8760
    by_hand = 9.5 * 8760 + (hours - 8760) * float(LIST_USD) / 2
    assert by_hand == pytest.approx(float(worst or 0), abs=0.5)
    # A cap of the user's own is kept to at those prices too, not at that of the term.
    cap = Decimal(90_000)
    capped = launched(
        of_term(counted=True), book, replace(long, guard=GuardRequest(max_cost_usd=cap))
    )
    hours = stopped_after_s(capped.orders) / 3600
    paid = 9.5 * 8760 + (hours - 8760) * float(LIST_USD) / 2
    assert paid == pytest.approx(90_000, abs=0.5)
