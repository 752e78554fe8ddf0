"""What is said of other people's loops is what the accuracy page found."""

import re
from pathlib import Path

import pytest

from gpuplan.cli.render.plans.explain import OWN_LOOP

PAGE = Path(__file__).parents[4] / "docs" / "accuracy.md"
FOUND = re.compile(
    r"expected ÷ published is (?P<middle>[\d.]+);.*?between (?P<low>[\d.]+) and (?P<high>[\d.]+)",
    re.DOTALL,
)


@pytest.mark.parametrize(
    ("heading", "said"),
    [
        ("## Small jobs that nobody had predicted", "took {} times .*, half of them {} to {}, and"),
        (
            "## Whole programmes that nobody had predicted",
            "trainings {} times, half of them {} to {} ",
        ),
    ],
)
def test_says_what_published_jobs_took(heading: str, said: str) -> None:
    section = PAGE.read_text(encoding="utf-8").split(heading)[1].split("\n## ")[0]
    found = FOUND.search(section)
    assert found is not None
    number = r"([\d.]+)"
    stated = re.search(said.format(number, number, number), OWN_LOOP)
    assert stated is not None
    middle, low, high = map(float, stated.groups())
    assert middle == pytest.approx(1 / float(found["middle"]), abs=0.01)
    assert low == pytest.approx(1 / float(found["high"]), abs=0.05)
    assert high == pytest.approx(1 / float(found["low"]), abs=0.06)
