"""`--param layers=12,24,48`: several values of a param, for one estimate each."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from ....catalog.errors import UsageError
from ....profiles.user_model.spec import parse_params

PYTHON_WORDS = {"True": True, "False": False, "None": None}


def split_params(items: Iterable[str]) -> tuple[dict[str, Any], dict[str, tuple[Any, ...]]]:
    """Return the params with one value, and those with a list of values to try.

    A list is what stands between commas where each part is JSON: numbers, true, false, null, words
    in double quotes, lists in brackets. Anything else with a comma is one string, and so is a
    quoted one, as it was before there were lists.

    >>> split_params(["layers=12,24", "names=q,v", 'stages="3,4"', "shape=[1,2]"])
    ({'names': 'q,v', 'stages': '3,4', 'shape': [1, 2]}, {'layers': (12, 24)})

    Raises:
        UsageError: An item is not `key=value`, a key comes twice, or a list has a value twice.
    """
    params = parse_params(items)
    lists: dict[str, tuple[Any, ...]] = {}
    for name, value in params.items():
        found = values_of(value) if isinstance(value, str) and "," in value else None
        if found is not None and name not in _quoted(items):
            _refuse_twice(name, found, text=value)
            lists[name] = tuple(found)
    return {name: value for name, value in params.items() if name not in lists}, lists


def values_of(text: str) -> list[Any] | None:
    """Return the values of a list without its brackets; None for a text that is no such list."""
    try:
        found: list[Any] = json.loads(f"[{text}]")
    except ValueError:
        found = [_word(part.strip()) for part in text.split(",")]
        return None if ... in found else found
    return found if len(found) > 1 else None


def _word(text: str) -> Any:
    """Return True, False or None as Python writes them, or a JSON value; ... for anything else."""
    if text in PYTHON_WORDS:
        return PYTHON_WORDS[text]
    try:
        return json.loads(text)
    except ValueError:
        return ...


def _quoted(items: Iterable[str]) -> set[str]:
    """Return the names whose value was typed as one JSON string: it is that string."""
    parted = (item.partition("=") for item in items)
    return {name.strip().replace("-", "_") for name, _, value in parted if _is_json(value.strip())}


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _refuse_twice(name: str, values: Sequence[Any], *, text: str) -> None:
    written = [json.dumps(value, sort_keys=True) for value in values]
    again = next((one for place, one in enumerate(written) if one in written[:place]), None)
    if again is not None:
        raise UsageError(
            f"--param {name}={text} has {again} twice, and each value is estimated once.",
            fix=f"give each value once; for one string, write --param '{name}=\"{text}\"'; for one"
            f" list, --param {name}=[{text}].",
        )
