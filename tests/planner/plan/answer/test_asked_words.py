"""The question of an answer in words."""

import pytest
from answers import make_ranked_estimate

from gpuplan.planner.plan.answer.asked_words import limit_items, work_items


@pytest.mark.parametrize(
    ("value", "item"),
    [
        ("r=16,alpha=8,targets=q_proj+v_proj", "LoRA r=16 on q_proj, v_proj"),
        (4, "lora=4"),  # A model file's own param of that name.
        (True, "lora=True"),
    ],
)
def test_adapters_are_named_as_people_name_them(value: object, item: str) -> None:
    asked = make_ranked_estimate().question
    assert asked is not None
    with_lora = asked.model_copy(update={"params": {"lora": value}})
    assert work_items(with_lora, None)[0] == item


def test_a_param_of_a_rule_is_told_from_one_that_was_given() -> None:
    asked = make_ranked_estimate().question
    assert asked is not None
    update = {"params": {"seq_len": 512, "layers": 2}, "param_rules": {"seq_len": "as T5 was"}}
    items = work_items(asked.model_copy(update=update), None)
    assert items[:2] == ["seq_len=512 (as T5 was)", "layers=2"]


@pytest.mark.parametrize(
    ("nodes", "item"), [((3,), "3 nodes"), ((1, 3), "1 or 3 nodes"), ((1,), "1 node")]
)
def test_several_numbers_of_nodes_are_one_item(nodes: tuple[int, ...], item: str) -> None:
    """It was "1 node,3 nodes"."""
    asked = make_ranked_estimate().question
    assert asked is not None
    machine = asked.machine.model_copy(update={"nodes": nodes})
    assert item in limit_items(asked.model_copy(update={"machine": machine}))


def test_limits_of_the_settings_are_told_from_those_that_were_typed() -> None:
    asked = make_ranked_estimate().question
    assert asked is not None
    limits = asked.limits.model_copy(update={"deadline_s": 86_400.0, "budget_usd": 500})
    update = {"limits": limits, "purchase": "spot", "from_settings": ("deadline", "purchase")}
    items = limit_items(asked.model_copy(update=update))
    assert "≤ 24 h (deadline from your settings)" in items
    assert "≤ $500" in items and "on spot (purchase from your settings)" in items


@pytest.mark.parametrize(
    ("kind", "item"), [("steps", "1 step"), ("epochs", "1 epoch of 5 samples")]
)
def test_one_of_a_kind_is_not_several(kind: str, item: str) -> None:
    asked = make_ranked_estimate().question
    assert asked is not None
    work = asked.work.model_copy(update={"kind": kind, "amount": 1, "dataset_size": 5})
    assert work_items(asked.model_copy(update={"work": work}), None)[0] == item


@pytest.mark.parametrize(
    ("epochs", "item"),
    [(1000, "1,000 epochs of 5 samples"), (2_000_000, "2,000,000 epochs of 5 samples")],
)
def test_many_epochs_are_told_as_other_numbers_are(epochs: float, item: str) -> None:
    asked = make_ranked_estimate().question
    assert asked is not None
    work = asked.work.model_copy(update={"kind": "epochs", "amount": epochs, "dataset_size": 5})
    assert work_items(asked.model_copy(update={"work": work}), None)[0] == item
