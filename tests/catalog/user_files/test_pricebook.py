"""The user's own terms: what is read, what is refused and by which line, what a price becomes."""

import json
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from pathlib import Path

import jsonschema
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuplan.catalog.embedded import embedded_catalogue
from gpuplan.catalog.errors import UsageError
from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.catalog.terms.pricebook import Discount, Pricebook
from gpuplan.catalog.user_files.pricebook import load_pricebook
from gpuplan.planner.plan.schema import schema_of

DOCS = Path(__file__).parents[3] / "docs"
A_BLOCK = """\
blocks:
  - provider: aws
    instance: p5.48xlarge
    region: us-east-1
"""
WHOLE = """\
discounts:
  - percent: 12
    provider: AWS
  - percent: 30
    provider: aws
    instance: p5.48xlarge
  - percent: 5
    provider: aws
    purchase: spot
reserved:
  - provider: aws
    instance: p5.48xlarge
    region: us-east-1
    usd_per_hour: 31.4
    term_years: 1
    upfront_usd: 8760
    count: 4
    id: cr-0123456789abcdef0
credits:
  - provider: google
    usd: 5_000
    expires: 2026-12-31
currency:
  code: eur
  per_usd: 0.92
  date: 2026-11-01
tax_percent: 19
"""
SECRET = "AKIAABCDEFGHIJKLMNOP"


def load(tmp_path: Path, text: str) -> Pricebook:
    path = tmp_path / "pricebook.yaml"
    path.write_text(text, "utf-8")
    return load_pricebook(path, embedded_catalogue())


def test_every_term_is_read(tmp_path: Path) -> None:
    book = load(tmp_path, WHOLE)
    assert [one.percent for one in book.discounts] == [12, 30, 5]
    assert book.discounts[0].provider == "aws"
    (reserved,) = book.reserved
    assert (reserved.count, reserved.term_years) == (4, 1)
    assert reserved.id == "cr-0123456789abcdef0"
    assert reserved.effective_usd_per_hour == Decimal("32.4")
    (credit,) = book.credits
    assert (credit.provider, credit.usd, credit.expires) == ("gcp", 5000, date(2026, 12, 31))
    assert book.currency is not None and book.currency.code == "EUR"
    assert book.tax_percent == 19


def test_quoted_blocks_are_read_by_their_fee_or_their_rate(tmp_path: Path) -> None:
    """By hand: $5,040 for 7 days of 24 hours are $30 an hour."""
    book = load(tmp_path, f"{A_BLOCK}    upfront_usd: 5040\n    days: 7\n")
    assert book.blocks[0].effective_usd_per_hour == 30
    book = load(tmp_path, f"{A_BLOCK}    usd_per_hour: 31.5\n")
    assert (book.blocks[0].days, book.blocks[0].effective_usd_per_hour) == (None, Decimal("31.5"))


def test_the_most_specific_discount_is_taken_and_none_is_added(tmp_path: Path) -> None:
    path = tmp_path / "pricebook.yaml"
    path.write_text(WHOLE, "utf-8")
    listed = {(o.provider, o.region, o.instance_type): o for o in embedded_catalogue().offers}
    mine = {(o.provider, o.region, o.instance_type): o for o in load_catalogue(None, path).offers}
    assert mine.keys() == listed.keys()
    for key, before in listed.items():
        after = mine[key]
        off = {True: Decimal("0.88"), False: Decimal(1)}[before.provider == "aws"]
        if before.instance_type == "p5.48xlarge":
            off = Decimal("0.70")
        spot_off = Decimal("0.95") if before.provider == "aws" else Decimal(1)
        if before.on_demand_usd_per_hour is not None:
            assert after.on_demand_usd_per_hour == before.on_demand_usd_per_hour * off
        if before.spot_usd_per_hour is not None:
            assert after.spot_usd_per_hour == before.spot_usd_per_hour * spot_off


def test_nothing_is_taken_off_a_price_that_the_user_states(tmp_path: Path) -> None:
    offers, book = tmp_path / "mine.yaml", tmp_path / "pricebook.yaml"
    offers.write_text(
        "offers: [{instance: node, accelerator: h100, accelerators_per_node: 8, usd_per_hour: 20}]"
    )
    book.write_text("discounts: [{percent: 50}]")
    (mine,) = [one for one in load_catalogue(offers, book).offers if one.is_user]
    assert mine.on_demand_usd_per_hour == 20


@pytest.mark.parametrize(
    ("text", "line", "says", "fix"),
    [
        ("discounts:\n  - provider: aws\n", 2, "has no percent", "Add `percent"),
        ("discounts:\n  - percent: 100\n", 2, "below 100", ""),
        (f"{A_BLOCK}    upfront_usd: 5300\n", 2, "days is not given", "Add `days"),
        (f"{A_BLOCK}    days: 7\n", 2, "either upfront_usd or usd_per_hour", "fee of one"),
        (f"{A_BLOCK}    upfront_usd: 5300\n    days: 15\n", 6, "no length that aws", "21"),
        ("discounts:\n  - percent: -3\n", 2, "above 0", ""),
        ("discounts:\n  - percent: much\n", 2, "'much', not a number", ""),
        ("discounts:\n  - percent: 5\n    provider: amazn\n", 3, "no provider 'amazn'", "aws"),
        ("discounts:\n  - percent: 5\n    region: us-est-1\n", 3, "or us-east-1", ""),
        (
            "discounts:\n  - percent: 5\n    provider: gcp\n    region: us-east-1\n",
            4,
            "not of gcp",
            "",
        ),
        (
            "discounts:\n  - percent: 5\n    instance: p5.48xlage\n",
            3,
            "Did you mean p5.48xlarge",
            "gpuplan offers",
        ),
        ("discounts:\n  - percent: 5\n    purchase: monthly\n", 3, "'monthly'", "committed"),
        ("discounts:\n  - percent: 5\n    procent: 6\n", 3, "Did you mean percent", "Known fields"),
        (
            "discounts:\n  - percent: 5\n    provider: aws\n  - percent: 6\n    provider: AWS\n",
            4,
            "on line 2 already",
            "Keep one",
        ),
        ("reserved:\n  - provider: aws\n", 2, "has no region", "Add `region"),
        (
            "reserved:\n  - {provider: aws, region: us-east-1, instance: p5.48xlarge,\n"
            "     usd_per_hour: 0, term_years: 1}\n",
            3,
            "upfront_usd is not given",
            "upfront",
        ),
        (
            "reserved:\n  - {provider: aws, region: us-east-1, instance: p5.48xlarge,\n"
            "     usd_per_hour: 9, term_years: 1, count: 2.5}\n",
            3,
            "whole instances",
            "",
        ),
        ("credits:\n  - {provider: gcp, usd: 5}\n", 2, "has no expires", "Add `expires"),
        ("credits:\n  - {provider: gcp, usd: 5, expires: soon}\n", 2, "a date like", ""),
        ("currency: {code: euro, per_usd: 1, date: 2026-01-01}\n", 1, "three letters", ""),
        ("tax_percent: 119\n", 1, "at most 100", ""),
        ("taxpercent: 19\n", 1, "Did you mean tax_percent", "Known fields"),
        ("- a list\n", 1, "must be a map", "docs/pricebook.md"),
        ("{}\n", 1, "no terms", "docs/pricebook.md"),
    ],
)
def test_an_error_says_its_line_what_was_given_and_how_to_mend_it(
    tmp_path: Path, text: str, line: int, says: str, fix: str
) -> None:
    with pytest.raises(UsageError) as caught:
        load(tmp_path, text)
    assert f"pricebook.yaml:{line}: " in caught.value.message
    assert says in caught.value.message
    assert fix in (caught.value.fix or "")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (f"discounts:\n  - percent: 5\n    provider: {SECRET}\n", 3),
        (f"discounts:\n  - percent: 5\n    {SECRET}: 5\n", 3),
        ("discounts:\n  - percent: 5\napi_key: abc\n", 3),
        ("tax_percent: 19\nlogin:\n  password: hunter2\n", 3),
        ("tax_percent: wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY\n", 1),
        ("credits:\n  - provider: hf_abcdefghijklmnopqrstu\n", 2),
    ],
)
def test_what_looks_like_a_key_is_refused_and_not_printed(
    tmp_path: Path, text: str, line: int
) -> None:
    with pytest.raises(UsageError) as caught:
        load(tmp_path, text)
    assert f"pricebook.yaml:{line}: " in caught.value.message
    for word in (SECRET, "abc", "hunter2", "wJalr", "hf_"):
        assert word not in str(caught.value).replace(str(tmp_path), "")


def test_no_name_of_the_catalogue_looks_like_a_key(tmp_path: Path) -> None:
    from gpuplan.catalog.text.secrets import looks_secret

    catalogue = embedded_catalogue()
    names = {one.instance_type for one in catalogue.offers} | {o.region for o in catalogue.offers}
    assert [name for name in sorted(names) if looks_secret(name)] == []


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(text=st.text(max_size=300))
def test_any_text_ends_in_terms_or_in_one_usage_error(tmp_path: Path, text: str) -> None:
    try:
        load(tmp_path, text)
    except UsageError as error:
        assert "pricebook.yaml" in error.message


PLACES = st.fixed_dictionaries(
    {
        "provider": st.none() | st.sampled_from(["aws", "gcp"]),
        "region": st.none() | st.sampled_from(["us-east-1", "us-central1"]),
        "instance": st.none() | st.sampled_from(["p5.48xlarge", "a3-highgpu-8g"]),
        "percent": st.decimals(Decimal("0.1"), Decimal("99.9"), places=1),
    }
)


@given(
    places=st.lists(
        PLACES, max_size=6, unique_by=lambda p: (p["provider"], p["region"], p["instance"])
    )
)
def test_a_discount_is_never_added_to_another(places: list[dict[str, object]]) -> None:
    book = Pricebook(discounts=tuple(Discount.model_validate(one) for one in places))
    for offer in embedded_catalogue().offers[:400]:
        covering = [one for one in book.discounts if one.covers(offer, "on-demand")]
        percent = book.discount_percent(offer, "on-demand")
        if not covering:
            assert percent is None
            continue
        assert percent in [
            one.percent for one in covering if one.rank == max(o.rank for o in covering)
        ]


def test_the_committed_schema_is_that_of_the_file(golden: Callable[[Path, str], None]) -> None:
    schema = schema_of(Pricebook, title="gpuplan pricebook")
    for part in (schema, *schema["$defs"].values()):
        part["required"] = REQUIRED.get(part["title"], [])
    example = yaml.safe_load(example_of_the_page())
    jsonschema.validate(json.loads(json.dumps(example, default=str)), schema)
    text = json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
    golden(DOCS / "schema" / "pricebook-1.0.json", text)


def test_the_example_of_the_page_is_read(tmp_path: Path) -> None:
    book = load(tmp_path, example_of_the_page())
    assert len(book.discounts) == 3 and book.reserved and book.credits and book.tax_percent == 19


def example_of_the_page() -> str:
    page = (DOCS / "pricebook.md").read_text("utf-8")
    return page.split("```yaml\n")[1].split("```")[0]


REQUIRED = {
    "CapacityBlock": ["provider", "instance", "region"],
    "Discount": ["percent"],
    "Reservation": ["provider", "instance", "region", "usd_per_hour", "term_years"],
    "Credit": ["provider", "usd", "expires"],
    "Currency": ["code", "per_usd", "date"],
}
