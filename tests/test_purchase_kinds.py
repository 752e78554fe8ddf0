"""The closed form against simulated runs, for each way to buy machines: a small part of them all.

`python benchmarks/purchase_kinds.py` takes 500 runs of each way, for the table of real-cost.md.
"""

import importlib
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "benchmarks"))
purchase_kinds = importlib.import_module("purchase_kinds")

PERCENT, POINTS, COVERAGE = 10.0, 3.0, (76.0, 84.0)
"""What is promised: of hours and dollars, of a deadline's chance, of runs in the 80 % interval."""
WITH_MEAN = 90.0
"""The most of an interval that reaches further on one side, since it holds its mean."""
CASES, DRAWS = 8, 2000


@pytest.fixture(scope="module", name="rows")
def the_rows() -> list[tuple[str, ...]]:
    """Return the rows of a small benchmark."""
    return [*purchase_kinds.rows(CASES, DRAWS)]


def numbers(cell: str) -> list[float]:
    """Return the numbers of a cell; none where it says that nothing is compared."""
    return [float(one) for one in re.findall(r"\d+(?:\.\d+)?", cell)]


def is_promised(covered: str) -> bool:
    """Return whether a cell of coverage keeps to what is promised."""
    low, high = COVERAGE
    usual, _, of_means = covered.partition("; up to")
    most = of_means.partition("(")[0]
    within = all(low <= one <= high for one in numbers(usual))
    return within and all(low <= one <= WITH_MEAN for one in numbers(most))


def test_every_way_to_buy_keeps_what_is_promised(rows: list[tuple[str, ...]]) -> None:
    for kind, hours, usd, chance, covered in rows:
        for cell, most in ((hours, PERCENT), (usd, PERCENT), (chance, POINTS)):
            assert all(one <= most for one in numbers(cell)), (kind, cell)
        assert is_promised(covered), (kind, covered)


def test_the_page_has_a_row_of_every_way_within_what_is_promised(
    rows: list[tuple[str, ...]],
) -> None:
    page = (ROOT / "docs" / "real-cost.md").read_text(encoding="utf-8")
    table = page.split(purchase_kinds.HEAD)[1].split("\n\n")[0]
    cells = [[one.strip() for one in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    assert [one[0] for one in cells] == [one[0] for one in rows]
    assert all(one[3] == "as on demand" or numbers(one[3])[0] <= POINTS for one in cells)
    assert all(is_promised(one[4]) for one in cells)
    assert all(numbers(one[4]) for one in cells)
