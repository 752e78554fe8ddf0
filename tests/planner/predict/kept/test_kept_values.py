"""Small results kept together: bit by bit, the newest alone where they are many."""

import pytest

from gpuplan.planner.plan.layout import Layout
from gpuplan.planner.plan.setup import Setup
from gpuplan.planner.predict.kept import kept_values
from gpuplan.planner.predict.kept.kept_values import KeptValues, setup_text


class Shelf:
    """Bytes by key, in memory."""

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}

    def get(self, key: str) -> bytes | None:
        return self.content.get(key)

    def put(self, key: str, content: bytes) -> None:
        self.content[key] = content


def test_floats_are_found_bit_by_bit() -> None:
    shelf, numbers = Shelf(), [0.1 + 0.2, 1e300, float("inf")]
    first = KeptValues(shelf, dict)
    assert first.value(("a", 1), lambda: numbers) == numbers
    assert first.value(("a", 1), list) == numbers
    first.save()
    assert KeptValues(shelf, dict).value(("a", 1), list) == numbers
    assert KeptValues(shelf, lambda: {"other": 1}).value(("a", 1), list) == []


def test_the_oldest_are_dropped_where_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_values, "MOST_VALUES", 2)
    shelf = Shelf()
    first = KeptValues(shelf, dict)
    for name in "abc":
        first.value((name,), lambda name=name: name)
    first.save()
    again = KeptValues(shelf, dict)
    assert [again.value((name,), lambda: "made") for name in "abc"] == ["made", "b", "c"]


def test_without_a_place_values_are_remembered_and_not_kept() -> None:
    values = KeptValues(None, dict)
    assert values.value((1,), lambda: 2) == values.value((1,), lambda: 3) == 2
    values.save()


def test_the_text_of_a_setup_does_not_depend_on_the_order_of_a_set() -> None:
    names = ["optimizer", "parameters", "activations"]
    texts = {
        setup_text(
            Setup(layout=Layout(), precision="fp32", micro_batch=1, features=frozenset(order))
        )
        for order in (names, names[::-1])
    }
    assert len(texts) == 1
    assert '"items": ["activations", "optimizer", "parameters"]' in texts.pop()
