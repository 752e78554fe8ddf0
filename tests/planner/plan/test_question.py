"""A question that makes no sense is refused where it is made, with what to write instead."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from gpuplan.catalog.errors import UsageError
from gpuplan.planner.plan.question import Choices, Machine, Money, Question, Work


@pytest.mark.parametrize(
    ("made", "fields", "said"),
    [
        (Work, {"tokens": "10B"}, "tokens='10B' is not a number above zero"),
        (Work, {"tokens": -1}, "tokens=-1 is not a number above zero"),
        (Work, {"steps": True}, "steps=True is not a number"),
        (Work, {"samples": float("nan")}, "samples=nan is not a number"),
        (Work, {"samples": 0.0001}, "samples=0.0001 is less than one of them"),
        (Work, {"tokens": 0.5}, "tokens=0.5 is less than one of them"),
        (Machine, {"accelerators": "H100"}, "accelerators='H100' is one word"),
        (Work, {"tokens": 1e9, "samples": 3}, "tokens and samples are given"),
        (Machine, {"nodes": 2}, r"nodes=2 is one item, and several are taken"),
        (Machine, {"nodes": (0,)}, "nodes: 0 is not a whole number above zero"),
        (Machine, {"max_nodes": 0}, "max_nodes=0 is not a number above zero"),
        (Choices, {"precisions": "bf16"}, "precisions='bf16' is one word"),
        (Choices, {"precisions": ("bf17",)}, "Did you mean bf16"),
        (Choices, {"recomputes": ("some",)}, "recomputes='some' is not one of none, selective"),
        (Choices, {"layouts": ("dp8",)}, "layouts: 'dp8' is no Layout"),
        (Choices, {"micro_batches": 4}, "micro_batches=4 is one item"),
        (Choices, {"micro_batches": (1.5,)}, "1.5 is not a whole number"),
        (Choices, {"offload": ("all",)}, "offload='all' is not one of optimizer"),
        (Choices, {"stack": "jax"}, "stack='jax' is not one of torch-eager"),
        (Choices, {"optimizer": "lion"}, "optimizer='lion' is not one of adamw"),
        (Question, {"work": 1e9}, "is not a Work"),
        (Question, {"top": -1}, "top=-1 is not a number above zero"),
        (Money, {"sort": "cheap"}, "sort='cheap' is not one of cost, time"),
        (Money, {"purchase": "sport"}, "Did you mean spot"),
        (Money, {"budget_usd": Decimal(0)}, "budget_usd"),
    ],
)
def test_what_is_refused(made: Callable[..., Any], fields: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        made(**fields)


def test_a_question_may_leave_everything_open() -> None:
    assert Question() == Question(work=Work(), machine=Machine(), choices=Choices(), money=Money())
    assert Work(tokens=1e9, global_batch=512).tokens == 1e9
    assert Money(budget_usd=Decimal("400.50"), sort="time").purchase == "on-demand"


def test_an_amount_as_the_command_line_takes_it_is_answered_with_its_number() -> None:
    with pytest.raises(UsageError) as raised:
        Work(tokens="10B")  # pyright: ignore[reportArgumentType]
    assert raised.value.fix == "give a number, such as tokens=1e+10."
