"""Tables kept from search to search: found for equal facts alone, never trusted when damaged."""

import numpy as np
import pytest

from gpuplan.planner.predict.kept.kept_tables import kept_array


class Shelf:
    """Tables in memory."""

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}

    def get(self, key: str) -> bytes | None:
        return self.content.get(key)

    def put(self, key: str, content: bytes) -> None:
        self.content[key] = content


def table(shelf: Shelf, facts: dict[str, object], size: int = 3) -> tuple[np.ndarray, bool]:
    """Return the table of these facts, and whether it was computed."""
    made = []

    def make() -> np.ndarray:
        made.append(True)
        return np.array([0.1, np.inf, 1e300] * (size // 3))

    return kept_array(shelf, lambda: facts, size, make), bool(made)


def test_a_table_is_computed_once_and_found_bit_by_bit() -> None:
    shelf = Shelf()
    first, computed = table(shelf, {"layers": 2})
    again, recomputed = table(shelf, {"layers": 2})
    assert (computed, recomputed) == (True, False)
    assert first.tobytes() == again.tobytes()


def test_other_facts_have_another_table() -> None:
    shelf = Shelf()
    table(shelf, {"layers": 2})
    assert table(shelf, {"layers": 3})[1]
    assert table(shelf, {"layers": 2, "more": None})[1]
    assert len(shelf.content) == 3


@pytest.mark.parametrize("damage", [b"", b"no table", b"half"])
def test_a_damaged_table_is_computed_again(damage: bytes) -> None:
    shelf = Shelf()
    table(shelf, {})
    (key,) = shelf.content
    shelf.content[key] = shelf.content[key][:-5] if damage == b"half" else damage
    assert table(shelf, {})[1]
    assert not table(shelf, {})[1], "and what was damaged is replaced"


def test_a_table_of_another_size_is_computed_again() -> None:
    shelf = Shelf()
    table(shelf, {}, size=3)
    found, computed = table(shelf, {}, size=6)
    assert computed
    assert found.shape == (6,)


def test_without_a_place_to_keep_it_a_table_is_computed() -> None:
    assert kept_array(None, dict, 1, lambda: np.array([2.0])).tolist() == [2.0]
