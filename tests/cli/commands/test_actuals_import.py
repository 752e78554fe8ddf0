"""`gpuplan actuals import`: bills of three forms beside what was counted, and hostile files."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from fake_engine import Clock
from launch_records import RUN, make_record

from gpuplan import api
from gpuplan.cli.main import run
from gpuplan.launcher.store.estimates import Store
from gpuplan.launcher.store.launch_record import Attempt
from gpuplan.launcher.store.launches import Ledger
from gpuplan.launcher.store.spending_limits import SpendingLimits

NOW = datetime(2027, 3, 20, tzinfo=UTC)
FOCUS = {
    "BilledCost": "30.00",
    "EffectiveCost": "31.50",
    "ListCost": "36.00",
    "ChargePeriodStart": "2027-03-02T00:00:00Z",
    "ChargePeriodEnd": "2027-03-02T01:00:00Z",
    "ProviderName": "Amazon Web Services",
    "SubAccountId": "123456789012",
    "ResourceId": "i-1",
    "Tags": json.dumps({"gpuplan-run": RUN}),
    "SkuId": "p4d",
    "ServiceName": "EC2",
    "ChargeCategory": "Usage",
    "BillingCurrency": "USD",
}
CUR = {
    "line_item_unblended_cost": "30.00",
    "line_item_usage_start_date": "2027-03-02 00:00:00",
    "line_item_usage_account_id": "123456789012",
    "line_item_line_item_type": "Usage",
    "line_item_currency_code": "USD",
    "line_item_product_code": "AmazonEC2",
    "line_item_usage_type": "BoxUsage:p4d.24xlarge",
    "line_item_resource_id": "i-1",
    "pricing_public_on_demand_cost": "36.00",
    "resource_tags": json.dumps({"user_gpuplan_run": RUN}),
}
GOOGLE = {
    "cost": 33.0,
    "currency": "USD",
    "usage_start_time": "2027-03-02 00:00:00 UTC",
    "project": {"id": "lab"},
    "service": {"description": "Compute Engine"},
    "sku": {"id": "A2"},
    "labels": [{"key": "gpuplan-run", "value": RUN}],
    "credits": [{"name": "committed", "amount": -3.0}],
    "cost_at_list": 36.0,
    "cost_type": "regular",
}


@pytest.fixture(autouse=True)
def launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep a launch of one hour at $36, and be in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    clock = Clock(NOW - timedelta(days=18))
    ledger = Ledger(Store(), now=clock)
    record = make_record(tmp_path, clock)
    ledger.reserve(record, SpendingLimits())
    attempt = Attempt(
        number=1,
        spot=False,
        asked_at=clock(),
        began_at=clock(),
        ended_at=clock() + timedelta(hours=1),
        usd_per_hour=Decimal(36),
        outcome="succeeded",
    )
    ended = {"state": "ended", "outcome": "succeeded", "attempts": (attempt,)}
    ledger.update(record.run, lambda one: one.model_copy(update=ended), what="ended")


def as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()


def imported(name: str, text: str, *words: str) -> api.BillingImport:
    Path(name).write_text(text)
    assert run(["actuals", "import", name, *words, "-o", "out.json"]) == 0
    return api.BillingImport.model_validate_json(Path("out.json").read_bytes())


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("focus.csv", as_csv([FOCUS])),
        ("cur.csv", as_csv([CUR])),
        ("google.json", json.dumps([GOOGLE])),
        ("google.jsonl", json.dumps(GOOGLE) + "\n\n"),
        ("google.csv", as_csv([{**GOOGLE, "labels": json.dumps(GOOGLE["labels"]),
                                "credits": json.dumps(GOOGLE["credits"])}])),
    ],
)  # fmt: skip
def test_every_form_is_joined_with_the_launch(name: str, text: str) -> None:
    found = imported(name, text)
    (one,) = found.launches
    assert (one.run, one.is_known) == (RUN, True)
    assert (one.counted_usd, one.billed_usd, one.list_usd) == (36, 30, 36)
    assert one.difference_usd == -6 and one.drift == 0 and not one.is_drifted
    assert (found.charges, found.labelled, found.duplicates) == (1, 1, 0)


def test_what_is_counted_and_in_no_bill_is_named_with_what_has_no_label(capsys) -> None:
    """A launch without a charge was left out, and so were the dollars of no launch."""
    stranger = {**FOCUS, "Tags": "", "BilledCost": "12.50"}
    found = imported("focus.csv", as_csv([stranger, {**stranger, "BilledCost": "-2"}]))
    assert (found.launches, found.unlabelled_usd) == ((), Decimal("10.50"))
    (one,) = found.unbilled
    assert (one.run, one.month, one.counted_usd) == (RUN, "2027-03", 36)
    assert one.is_month_imported
    assert run(["actuals", "import", "focus.csv"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "2 charges have no label of a launch: $10.50." in said
    assert f"! Counted and not billed: {RUN} 2027-03 $36.00: no charge of these bills" in said


def test_a_month_of_a_billed_launch_that_was_not_imported_is_in_its_difference(capsys) -> None:
    april = {**FOCUS, "ChargePeriodStart": "2027-04-01T00:00:00Z"}
    (one,) = imported("april.csv", as_csv([april])).unbilled
    assert (one.month, one.counted_usd, one.is_month_imported) == ("2027-03", 36, False)
    assert run(["actuals", "import", "april.csv"]) == 0
    assert "import the bill of that month too" in " ".join(capsys.readouterr().out.split())
    assert imported("march.csv", as_csv([FOCUS])).unbilled == ()


def test_a_bill_of_another_provider_says_nothing_of_a_launch() -> None:
    other = {**FOCUS, "ProviderName": "Oracle", "Tags": ""}
    assert imported("focus.csv", as_csv([other])).unbilled == ()


def test_a_forecast_is_no_bill(capsys) -> None:
    Path("forecast.csv").write_text(as_csv([{**FOCUS, "x_RecordType": "forecast"}]))
    assert run(["actuals", "import", "forecast.csv"]) == 2
    assert "forecast.csv:2: it is a forecast" in capsys.readouterr().err


@pytest.mark.parametrize("column", ["resource_tags_user_gpuplan_run", "resource_tags.gpuplan-run"])
def test_a_tag_may_have_a_column_of_its_own(column: str) -> None:
    row = {**CUR, "resource_tags": "", column: RUN}
    assert imported("cur.csv", as_csv([row])).launches[0].run == RUN


def test_a_row_that_is_there_twice_counts_once_and_a_month_replaces_itself() -> None:
    other = {**FOCUS, "ChargePeriodStart": "2027-03-02T01:00:00Z"}
    found = imported("focus.csv", as_csv([FOCUS, FOCUS, other]))
    assert (found.launches[0].billed_usd, found.duplicates) == (60, 1)
    again = imported("focus.csv", as_csv([FOCUS, FOCUS, other]))
    assert again.launches == found.launches
    # The corrected month has one charge; another month and another account stay.
    april = {**FOCUS, "ChargePeriodStart": "2027-04-01T00:00:00Z", "BilledCost": "7"}
    account = {**FOCUS, "SubAccountId": "2", "BilledCost": "5"}
    imported("more.csv", as_csv([april, account]))
    found = imported("focus.csv", as_csv([{**FOCUS, "BilledCost": "31"}]))
    assert found.launches[0].billed_usd == 31 + 7 + 5
    assert found.months == ("aws 123456789012 2027-03",)


@pytest.mark.parametrize(
    ("row", "begin", "period", "march", "april"),
    [
        (FOCUS, "ChargePeriodStart", "BillingPeriodStart", "2027-03-01T00:00:00Z", "2027-04-01"),
        (CUR, "line_item_usage_start_date", "bill_billing_period_start_date",
         "2027-03-01 00:00:00", "2027-04-01 00:00:00"),
        (GOOGLE, "usage_start_time", "invoice", {"month": "202703"}, {"month": "202704"}),
    ],
)  # fmt: skip
def test_the_next_bill_keeps_a_month_of_which_it_has_a_late_charge(
    row: dict[str, Any], begin: str, period: str, march: Any, april: Any
) -> None:
    cost = next(name for name in ("BilledCost", "line_item_unblended_cost", "cost") if name in row)

    def text(one: dict[str, Any]) -> str:
        return json.dumps([one]) if row is GOOGLE else as_csv([one])

    name = "bill.json" if row is GOOGLE else "bill.csv"
    imported(name, text({**row, period: march}))
    late = {**row, period: april, begin: "2027-03-31 23:00:00", cost: "2.00"}
    if row is GOOGLE:
        late |= {"credits": []}
    found = imported(name, text(late))
    # Calculator: 30.00 of March's bill and 2.00 of April's.
    assert found.launches[0].billed_usd == 32
    assert [one[-7:] for one in found.months] == ["2027-04"]


def test_a_savings_plan_counts_its_effective_cost_and_list_price_once() -> None:
    plan = {
        **CUR,
        "line_item_line_item_type": "SavingsPlanCoveredUsage",
        "line_item_unblended_cost": "36.00",
        "savings_plan_savings_plan_effective_cost": "22.50",
    }
    negation = {
        **plan,
        "line_item_line_item_type": "SavingsPlanNegation",
        "line_item_unblended_cost": "-36.00",
        "pricing_public_on_demand_cost": "",
        "savings_plan_savings_plan_effective_cost": "",
    }
    discount = {**negation, "line_item_line_item_type": "EdpDiscount",
                "line_item_unblended_cost": "-1.25"}  # fmt: skip
    (one,) = imported("cur.csv", as_csv([plan, negation, discount])).launches
    # Calculator: 36 - 36 - 1.25; 22.50 - 1.25; the usage alone has a list price.
    assert (one.billed_usd, one.effective_usd, one.list_usd) == (
        Decimal("-1.25"),
        Decimal("21.25"),
        36,
    )


def test_list_prices_that_drifted_are_flagged(capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    found = imported("focus.csv", as_csv([{**FOCUS, "ListCost": "40"}]))
    assert found.launches[0].is_drifted and found.launches[0].drift == pytest.approx(1 / 9)
    assert run(["actuals", "import", "focus.csv"]) == 0
    said = capsys.readouterr().out
    assert "+11.1 % !" in said and "5 % or more off" in said
    assert run(["actuals", "import", "focus.csv", "--format", "markdown"]) == 0
    assert "| ---: |" in capsys.readouterr().out


def test_tax_and_credits_are_billed_and_are_no_drift() -> None:
    tax = {**FOCUS, "ChargeCategory": "Tax", "BilledCost": "6", "ListCost": ""}
    credit = {**FOCUS, "ChargeCategory": "Credit", "BilledCost": "-10", "ListCost": "0"}
    (one,) = imported("focus.csv", as_csv([FOCUS, tax, credit])).launches
    assert one.billed_usd == 26 and one.list_usd == 36 and not one.is_drifted


def test_charges_of_others_are_counted_and_not_kept(capsys) -> None:
    rows = [{**FOCUS, "Tags": ""}, {**FOCUS, "Tags": '{"team": "x"}'}]
    found = imported("focus.csv", as_csv(rows))
    assert (found.charges, found.labelled, found.launches) == (2, 0, ())
    assert run(["actuals", "import", "focus.csv"]) == 0
    assert "activate it as a cost allocation tag" in capsys.readouterr().out


def test_a_launch_of_another_store_is_unknown_and_not_zero() -> None:
    row = {**FOCUS, "Tags": '{"gpuplan-run": "other-1"}'}
    (one,) = imported("focus.csv", as_csv([row])).launches
    assert not one.is_known and one.counted_usd is None and one.difference_usd is None


def test_another_currency_is_refused_unless_a_rate_is_given(capsys) -> None:
    text = as_csv([{**FOCUS, "BillingCurrency": "EUR"}])
    Path("focus.csv").write_text(text)
    assert run(["actuals", "import", "focus.csv"]) == 2
    said = capsys.readouterr().err
    assert "focus.csv:2: the bill is in EUR" in said and "--rate EUR=1.08" in said
    (one,) = imported("focus.csv", text, "--rate", "EUR=1.10").launches
    assert one.billed_usd == 33


def test_a_compressed_file_is_read() -> None:
    Path("focus.csv.gz").write_bytes(gzip.compress(as_csv([FOCUS]).encode()))
    assert api.import_actuals(["focus.csv.gz"]).launches[0].billed_usd == 30


GOOD = as_csv([FOCUS])
BAD = {
    "empty.csv": (b"", "has no charges"),
    "head.csv": (GOOD.splitlines(keepends=True)[0].encode(), "has no charges"),
    "other.csv": (b"a,b\n1,2\n", "other.csv:2: its columns are of no bill that is known"),
    "cut.csv": ((GOOD + "30.00,31").encode(), "cut.csv:3: it has 2 cells, and there are 13"),
    "quote.csv": ((GOOD + '"30.00').encode(), "it is no CSV"),
    "nul.csv": (GOOD.replace("30.00", "30\x00").encode(), "no amount of money"),
    "nan.csv": (GOOD.replace("30.00", "NaN").encode(), "nan.csv:2: BilledCost is 'NaN'"),
    "huge.csv": (GOOD.replace("30.00", "1e999").encode(), "BilledCost is '1e999'"),
    "none.csv": (GOOD.replace("30.00", "").encode(), "BilledCost is empty"),
    "time.csv": (GOOD.replace("2027-03-02T00", "yesterday").encode(), "is no time"),
    "tags.csv": (GOOD.replace("{", "[").encode(), "is no JSON of tags"),
    "deep.csv": (GOOD.replace('"{', '"' + "[" * 100_000).encode(), "deep.csv:"),
    "bytes.csv": (GOOD.encode() + b"\xff\xfe", "bytes.csv:"),
    "long.csv": (GOOD.encode() + b"x" * 2_000_000, "it is no CSV"),
    "twice.csv": (b"BilledCost,BilledCost\n1,2\n", "a column is there twice"),
    "cut.csv.gz": (gzip.compress(GOOD.encode() * 50)[:60], "damaged or ends too early"),
    "no.csv.gz": (b"no gzip", "damaged or ends too early"),
    "cut.json": (json.dumps([GOOGLE])[:-9].encode(), "it is no JSON"),
    "cut.jsonl": ((json.dumps(GOOGLE) + '\n{"cost').encode(), "cut.jsonl:2: it is no JSON"),
    "list.json": (b"[1, 2]", "list.json:1: it is no object"),
    "credits.json": (json.dumps({**GOOGLE, "credits": [1]}).encode(), "credits is no list"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_hostile_or_truncated_file_ends_in_one_message_and_changes_nothing(
    name: str, capsys
) -> None:
    before = imported("good.csv", GOOD).launches
    content, said = BAD[name]
    Path(name).write_bytes(content)
    # Also behind a good file of the same month.
    Path("better.csv").write_text(as_csv([{**FOCUS, "BilledCost": "99"}]))
    assert run(["actuals", "import", "better.csv", name]) == 2
    message = capsys.readouterr().err
    assert said in message and "Traceback" not in message and "To fix" in message
    assert len(message) < 1000
    assert imported("good.csv", GOOD).launches == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["actuals"], "Missing argument"),
        (["actuals", "import"], "No bill is given."),
        (["actuals", "import", "nothing.csv"], "Cannot read nothing.csv"),
        (["actuals", "import", "."], "Cannot read ."),
        (["actuals", "a", "b"], "2 runs are given"),
        (["actuals", "a", "--rate", "EUR=1"], "--rate is for bills"),
        (["actuals", "import", "x", "--rate", "EUR"], "write EUR=1.08"),
        (["actuals", "import", "x", "--rate", "EUR=-1"], "write EUR=1.08"),
        (["actuals", "nothing"], "nothing"),
    ],
)
def test_nonsense_ends_in_one_message(capsys, words: list[str], said: str) -> None:
    assert run(words) == 2
    message = capsys.readouterr().err
    assert said in message and "Traceback" not in message
