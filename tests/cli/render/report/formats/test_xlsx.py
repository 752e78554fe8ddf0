"""The workbook of a report: live formulas that agree with ours, and texts that stay texts."""

import io
import random
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest
from budget_reports import (
    HOSTILE_NAMES,
    bare_report,
    hostile_report,
    large_report,
    make_report,
    small_report,
)
from budget_rows import cents, entry
from openpyxl import Workbook, load_workbook

from gpuplan.catalog.errors import UsageError
from gpuplan.cli.render.report.figures import clean
from gpuplan.cli.render.report.formats import xlsx
from gpuplan.cli.render.report.write import as_xlsx
from gpuplan.planner.budget.report.report import BudgetReport

MAKERS = [small_report, large_report, hostile_report, bare_report]
PLANNED, CONTINGENCY, BUDGET = "B4", "B6", "B7"


def opened(data: bytes, *, values: bool = False) -> Workbook:
    return load_workbook(io.BytesIO(data), data_only=values)


def recalculated(books: dict[str, Workbook], folder: Path) -> dict[str, Workbook]:
    """Return workbooks as LibreOffice computes them: what openpyxl saves holds no results."""
    command = ["soffice", f"-env:UserInstallation={(folder / 'profile').as_uri()}", "--headless"]
    command += ["--convert-to", "xlsx:Calc MS Excel 2007 XML", "--outdir", str(folder / "done")]
    for name, book in books.items():
        book.save(folder / f"{name}.xlsx")
        command.append(str(folder / f"{name}.xlsx"))
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    return {name: load_workbook(folder / "done" / f"{name}.xlsx", data_only=True) for name in books}


def sums_of(book: Workbook) -> dict[str, Decimal]:
    """Return name → dollars of every sum of the summary."""
    found = {}
    rows = list(book["Summary"].iter_rows(max_col=2, values_only=True))
    first = next(at for at, row in enumerate(rows) if row == ("Experiment", "US dollars"))
    for row in rows[first:]:
        if row[0] not in (None, "Total") and isinstance(row[1], int | float):
            found[str(row[0])] = cents(Decimal(str(row[1])))
    return found


def expected_sums(report: BudgetReport) -> dict[str, Decimal]:
    sums = (*report.by_experiment, *report.by_owner, *report.by_provider, *report.by_kind)
    return {clean(one.name): one.usd for one in sums}


def with_ties() -> BudgetReport:
    """Return a report whose lines end on half a cent, or nearly."""
    draw = random.Random(7)
    base = small_report()
    pairs = [("0.5", "0.01"), ("1.005", "1"), ("2.675", "1"), ("1.115", "3"), ("0.145", "1")]
    pairs += [
        (str(draw.randrange(1, 10**9) / 10**3), str(draw.randrange(1, 10**6) / 10**4))
        for _ in range(300)
    ]
    rows = tuple(
        entry(
            base.project.start,
            "pretrain",
            "accelerators",
            f"line {index}",
            quantity=quantity,
            unit="hour",
            unit_usd=price,
        )
        for index, (quantity, price) in enumerate(pairs)
    )
    total = sum((row.usd for row in rows), Decimal(0))
    first = base.by_month[0].model_copy(update={"usd": total})
    empty = [row.model_copy(update={"usd": Decimal(0)}) for row in base.by_month[1:]]
    contingency = cents(total * Decimal("0.1"))
    return base.model_copy(
        update={
            "entries": rows,
            "total": base.total.model_copy(update={"usd": total}),
            "by_month": (first, *empty),
            "contingency_usd": contingency,
            "budget_usd": total + contingency,
            **{
                name: (getattr(base, name)[0].model_copy(update={"name": label, "usd": total}),)
                for name, label in (
                    ("by_experiment", "pretrain"),
                    ("by_owner", "no owner"),
                    ("by_provider", "no provider"),
                    ("by_kind", "accelerators"),
                )
            },
        }
    )


@pytest.mark.parametrize("make", MAKERS)
def test_what_it_shows_before_it_is_computed_is_ours(make) -> None:
    report = make()
    book = opened(as_xlsx(report), values=True)
    summary = book["Summary"]
    assert summary[PLANNED].value == float(report.total.usd)
    assert summary[CONTINGENCY].value == float(report.contingency_usd)
    assert summary[BUDGET].value == float(report.budget_usd)
    assert sums_of(book) == expected_sums(report)
    months = [row[1] for row in book["By month"].iter_rows(min_row=2, values_only=True)]
    assert months == [*(float(one.usd) for one in report.by_month), float(report.total.usd)]
    assert book["Ledger"].max_row == len(report.entries) + 1


def test_every_line_is_quantity_times_a_price_of_the_sheet_of_prices() -> None:
    report = small_report()
    book = opened(as_xlsx(report))
    for row, one in enumerate(report.entries, start=2):
        ledger, price = book["Ledger"], str(book["Ledger"][f"M{row}"].value)
        assert ledger[f"N{row}"].value == f"=ROUND(K{row}*M{row},2)"
        assert ledger[f"K{row}"].value == pytest.approx(float(one.quantity))
        assert price.startswith("=Prices!$E$")
        assert book["Prices"][price.partition("!")[2].replace("$", "")].value == float(one.unit_usd)
    assert str(book["By month"]["B2"].value).startswith("=ROUND(SUMIFS(Ledger!")
    assert book["Prices"].max_row - 3 < len(report.entries) / 2, "each price is there once"


def test_a_tax_follows_the_rows_that_it_is_a_share_of() -> None:
    report = small_report()
    machines = [one for one in report.entries if one.experiment == "pretrain"][:2]
    taxed = sum((one.usd for one in machines), Decimal(0))
    given = {"quantity": taxed, "unit": "USD", "unit_usd": "0.19"}
    tax = entry(machines[0].month, "pretrain", "tax", "tax", **given)
    entries = (report.entries[0], *machines, tax, tax)
    book = opened(as_xlsx(report.model_copy(update={"entries": entries})))
    assert book["Ledger"]["K5"].value == "=ROUND(SUM(N3:N4),2)"
    assert book["Ledger"]["K6"].value == float(taxed), "another tax is not taxed"


def test_texts_are_texts() -> None:
    report = hostile_report()
    book = opened(as_xlsx(report))
    allowed = ("=ROUND(", "=B4+B6", "=Prices!$E$", "=D")
    names = {clean(name) for name in HOSTILE_NAMES}
    seen = set()
    for sheet in book:
        for row in sheet.iter_rows():
            for cell in row:
                if cell.data_type == "f":
                    assert str(cell.value).startswith(allowed), cell
                assert cell.hyperlink is None
                if cell.value in names:
                    assert cell.data_type == "s"
                    seen.add(cell.value)
    assert seen == names


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xlsx.importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(UsageError, match="XlsxWriter") as caught:
        as_xlsx(small_report())
    assert caught.value.fix == 'pip install "gpuplan[report]".'


def test_it_is_the_same_each_time() -> None:
    assert as_xlsx(small_report()) == as_xlsx(small_report())


def test_importing_the_room_needs_no_extra() -> None:
    program = (
        "import sys; sys.modules['xlsxwriter'] = sys.modules['vl_convert'] = None;"
        "import gpuplan.cli.render.report.write"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def changed_price() -> tuple[BudgetReport, Workbook, Decimal]:
    """Return a report, its workbook with another price, and the dollars that adds."""
    report = make_report(("pretrain", "ablations"), months=4)
    book = opened(as_xlsx(report))
    prices = book["Prices"]
    row = next(row for row in range(4, prices.max_row + 1) if prices[f"A{row}"].value == "gcp")
    assert prices[f"E{row}"].value == 29.3868
    prices[f"E{row}"] = 40
    changed = [one for one in report.entries if one.provider == "gcp" and one.sku]
    assert changed
    more = sum((cents(one.quantity * 40) - one.usd for one in changed), Decimal(0))
    return report, book, more


@pytest.fixture(scope="module")
def computed(require, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Workbook]:
    """Return the workbooks of all makers, and that of a changed price, as LibreOffice has them.

    All at once: to start it takes longer than a workbook.
    """
    require("libreoffice", "soffice recalculates the workbook")
    books = {make.__name__: opened(as_xlsx(make())) for make in (*MAKERS, with_ties)}
    _, books["changed"], _ = changed_price()
    return recalculated(books, tmp_path_factory.mktemp("computed"))


@pytest.mark.slow
@pytest.mark.parametrize("make", [*MAKERS, with_ties])
def test_libreoffice_computes_what_we_did(make, computed: dict[str, Workbook]) -> None:
    report, book = make(), computed[make.__name__]
    summary = book["Summary"]
    for cell, usd in (
        (PLANNED, report.total.usd),
        (CONTINGENCY, report.contingency_usd),
        (BUDGET, report.budget_usd),
    ):
        assert cents(Decimal(str(summary[cell].value))) == usd
    assert sums_of(book) == expected_sums(report)
    for row, one in enumerate(report.entries, start=2):
        assert cents(Decimal(str(book["Ledger"][f"N{row}"].value))) == one.usd, one
    for row, one in enumerate(report.by_month, start=2):
        assert cents(Decimal(str(book["By month"][f"B{row}"].value))) == one.usd


@pytest.mark.slow
def test_a_changed_price_changes_the_total(computed: dict[str, Workbook]) -> None:
    report, _, more = changed_price()
    after = computed["changed"]
    total = report.total.usd + more
    assert cents(Decimal(str(after["Summary"][PLANNED].value))) == total
    assert cents(Decimal(str(after["Summary"][BUDGET].value))) == total + cents(
        total * Decimal("0.1")
    )
