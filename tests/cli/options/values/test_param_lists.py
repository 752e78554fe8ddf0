"""`--param key=a,b`: what is a list of values, and what stays one value."""

from typing import Any

import pytest

from gpuplan.catalog.errors import UsageError
from gpuplan.cli.options.values.param_lists import split_params


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("12,24,48", (12, 24, 48)),
        ("0.1, 1e-3", (0.1, 0.001)),
        ("true,false", (True, False)),
        ("True,False,None", (True, False, None)),
        ('"small","large"', ("small", "large")),
        ("[1,2],[3,4]", ([1, 2], [3, 4])),
        ('"a,b","c"', ("a,b", "c")),
    ],
)
def test_json_values_between_commas_are_a_list(text: str, values: tuple[Any, ...]) -> None:
    assert split_params([f"key={text}"]) == ({}, {"key": values})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12", 12),
        ("[12,24]", [12, 24]),
        ('"3,4,6,3"', "3,4,6,3"),
        ("q_proj,v_proj", "q_proj,v_proj"),
        ("3,four", "3,four"),
        ("3,", "3,"),
        ('{"a": 1, "b": 2}', {"a": 1, "b": 2}),
    ],
)
def test_all_else_is_the_one_value_that_it_was(text: str, value: Any) -> None:
    assert split_params([f"key={text}"]) == ({"key": value}, {})


def test_lists_and_single_values_stand_together() -> None:
    fixed, lists = split_params(["layers=2,4", "hidden=64", "head-size=8,16"])
    assert fixed == {"hidden": 64}
    assert list(lists.items()) == [("layers", (2, 4)), ("head_size", (8, 16))]


def test_a_value_twice_is_refused_with_the_way_to_write_one_string() -> None:
    with pytest.raises(UsageError, match=r"stages=3,4,6,3 has 3 twice") as error:
        split_params(["stages=3,4,6,3"])
    assert "--param 'stages=\"3,4,6,3\"'" in str(error.value)
