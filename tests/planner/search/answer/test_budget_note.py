"""A budget beside plans of which a part has no known price: what is known of keeping to it."""

from dataclasses import replace
from decimal import Decimal
from types import SimpleNamespace

import pytest

from gpuplan.planner.cost.beside_machines.beside import HOST, most_beside_usd
from gpuplan.planner.cost.beside_machines.data_cost import DISKS
from gpuplan.planner.plan.parts import DataLine
from gpuplan.planner.plan.question import Money, Question
from gpuplan.planner.search.answer.notes import budget_note

QUESTION = Question(money=Money(budget_usd=Decimal(6)))


def line(name: str, quantity: float = 100.0) -> DataLine:
    return DataLine(
        name=name,
        quantity=quantity,
        unit="GB-month",
        unit_usd=None,
        usd=None,
        source=None,
        is_certain=True,
    )


def plan(provider: str, *lines: DataLine, is_lower_bound: bool = True) -> SimpleNamespace:
    return SimpleNamespace(
        is_lower_bound=is_lower_bound,
        offer=SimpleNamespace(provider=provider),
        whole_job=SimpleNamespace(data_lines=lines),
    )


def notes(*plans: SimpleNamespace, question: Question = QUESTION) -> list[str]:
    return list(budget_note(question, plans))  # pyright: ignore[reportArgumentType]


def test_what_bounds_a_line_is_the_dearest_price_that_any_seller_states() -> None:
    assert most_beside_usd([line(DISKS)]) == pytest.approx(Decimal("27.2"))
    assert most_beside_usd([line(DISKS)], Decimal(20)) == pytest.approx(Decimal("32.64"))
    assert most_beside_usd([line(DISKS), line(HOST)]) is None
    assert most_beside_usd([]) == 0


def test_a_budget_that_the_dearest_price_keeps_is_kept() -> None:
    assert notes(plan("nebius", line(DISKS))) == [
        "plans that cost at least (≥) so much likely keep to $6 even at the dearest known price of"
        " what has none"
    ]


def test_where_nothing_bounds_a_part_it_is_not_known() -> None:
    first, second = notes(plan("modal", line(HOST)), plan("nebius", line(DISKS)))
    assert first.startswith("whether plans of modal keep to $6 is not known: vCPUs and memory")
    assert second.startswith("other plans that cost at least")


def test_nothing_is_said_without_a_budget_or_where_all_has_a_price() -> None:
    assert not notes(plan("nebius", is_lower_bound=False))
    free = replace(QUESTION, money=Money())
    assert not notes(plan("nebius", line(DISKS)), question=free)
