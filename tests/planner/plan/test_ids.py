"""A plan's id: the same content, the same id, whatever list it stands in."""

import json
from dataclasses import asdict
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuplan.planner.plan.ids import PLAN_ID_DIGITS, content_hash, plan_id
from gpuplan.planner.plan.layout import Layout
from gpuplan.planner.plan.question import Question, Work

FIELDS = {
    "precision": "bf16-amp",
    "layout": Layout(data=8, shard=8, zero_stage=3),
    "offer": {"usd_per_hour": 12.5, "price_date": date(2026, 8, 1)},
    "notes": ("one", "two"),
}


def test_an_id_is_ten_hex_digits() -> None:
    assert len(plan_id(FIELDS)) == PLAN_ID_DIGITS == 10
    int(plan_id(FIELDS), 16)


def test_the_order_of_fields_and_the_place_in_a_list_do_not_matter() -> None:
    reordered = dict(reversed(list(FIELDS.items())))
    placed = {**reordered, "id": "x", "position": 3, "tie_with_previous": True}
    assert plan_id(placed) == plan_id(FIELDS)


def test_another_price_is_another_plan() -> None:
    dearer = {**FIELDS, "offer": {"usd_per_hour": 12.6, "price_date": date(2026, 8, 1)}}
    assert plan_id(dearer) != plan_id(FIELDS)


def test_a_model_and_its_json_have_the_same_hash() -> None:
    layout = Layout(data=8, shard=8, zero_stage=3)
    assert content_hash(layout) == content_hash(json.loads(json.dumps(asdict(layout))))


def test_equal_prices_hash_alike_however_they_are_written() -> None:
    assert content_hash(Decimal("3.50")) == content_hash(Decimal("3.5"))


def test_sets_paths_and_questions_have_a_hash() -> None:
    assert content_hash(frozenset({"a", "b"})) == content_hash(frozenset({"b", "a"}))
    assert content_hash(Path("a/b")) == content_hash("a/b")
    assert content_hash(Question(work=Work(steps=1))) != content_hash(Question(work=Work(steps=2)))


def test_integers_beyond_what_json_readers_hold_are_hashed_as_floats() -> None:
    assert content_hash(2**60) == content_hash(float(2**60))


def test_what_has_no_json_form_is_refused() -> None:
    with pytest.raises(TypeError, match="object"):
        content_hash(object())


@given(st.dictionaries(st.text(), st.integers() | st.floats(allow_nan=False, allow_infinity=False)))
def test_any_plain_value_has_a_stable_hash(content: dict[str, float]) -> None:
    assert content_hash(content) == content_hash(dict(reversed(list(content.items()))))
