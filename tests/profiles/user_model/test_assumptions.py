"""What the user says of conditions and sizes, as it is typed and as it is kept."""

from pathlib import Path

import pytest

from gpuplan.catalog.errors import UsageError
from gpuplan.profiles.user_model.assumptions import assumed_by_options, parse_assumptions
from gpuplan.profiles.user_model.spec import ModelSpec, parse_model_spec


@pytest.mark.parametrize(
    ("size", "available", "batch_size", "found"),
    [
        (64, None, None, 64),
        ("64", 10, 2, 64),
        ("64/sample", 10, 2, 128),
        ("64/sample", 10, None, None),
        ("50%", 11, 2, 6),
        ("12.5 %", 800, None, 100),
        ("100%", 7, 2, 7),
        ("50%", None, 2, None),
        ("0", 7, 2, 0),
    ],
)
def test_a_size_is_a_number_a_number_per_sample_or_a_share(
    size: int | str, available: int | None, batch_size: int | None, found: int | None
) -> None:
    (assumption,) = parse_assumptions({"model.py:3": size})
    assert not isinstance(assumption.value, bool)
    assert assumption.value.of(available, batch_size) == found


@pytest.mark.parametrize(
    ("place", "filename", "line", "is_there"),
    [
        ("model.py:12", "/home/me/model.py", 12, True),
        ("./model.py:12", "/home/me/model.py", 12, True),
        ("parts/model.py:12", "/home/me/parts/model.py", 12, True),
        ("parts\\model.py:12", "C:\\me\\parts\\model.py", 12, True),
        ("/home/me/model.py:12", "/home/me/model.py", 12, True),
        ("model.py:12", "/home/me/model.py", 13, False),
        ("model.py:12", "/home/me/my_model.py", 12, False),
        ("parts/model.py:12", "/home/me/other/model.py", 12, False),
    ],
)
def test_a_line_is_named_by_the_end_of_its_path(
    place: str, filename: str, line: int, is_there: bool
) -> None:
    (assumption,) = parse_assumptions({place: True})
    assert assumption.is_at(filename, line) is is_there


@pytest.mark.parametrize("place", ["model.py", "model.py:", "model.py:0", "model:3", "3", ""])
def test_what_is_no_line_is_refused(place: str) -> None:
    with pytest.raises(UsageError, match="is not a line of a Python file") as error:
        parse_assumptions({place: True})
    assert "FILE:LINE" in (error.value.fix or "")


@pytest.mark.parametrize("size", ["", "many", "-3", "1.5", "101%", "%", "3/batch", "nan"])
def test_what_is_no_size_is_refused(size: str) -> None:
    with pytest.raises(UsageError, match="is not understood") as error:
        parse_assumptions({"model.py:3": size})
    assert "64/sample" in (error.value.fix or "")


def test_options_become_what_the_function_takes() -> None:
    found = assumed_by_options(["a.py:1"], ["b.py:2"], ["c.py:3=50%"])
    assert found == {"a.py:1": True, "b.py:2": False, "c.py:3": "50%"}
    options = [each.option for each in parse_assumptions(found)]
    assert options == ["--assume-true a.py:1", "--assume-false b.py:2", "--assume-size c.py:3=50%"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((["a.py:1"], ["a.py:1"], []), "a.py:1 is given twice"),
        ((["a.py:1", "a.py:1"], [], []), "a.py:1 is given twice"),
        (([], [], ["a.py:1"]), "is not of the form FILE:LINE=SIZE"),
    ],
)
def test_options_that_contradict_or_lack_a_size_are_refused(
    options: tuple[list[str], list[str], list[str]], message: str
) -> None:
    with pytest.raises(UsageError, match=message) as error:
        assumed_by_options(*options)
    assert error.value.fix


def test_a_spec_keeps_what_is_assumed(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text("")
    assumed = {"model.py:3": False, "model.py:4": "64/sample", "model.py:5": "12.5%"}
    spec = parse_model_spec(str(file), assume=assumed)
    assert spec.assumed == assumed
    assert ModelSpec.from_json(spec.to_json()) == spec


def test_a_spec_that_an_earlier_version_kept_assumes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text("")
    kept = parse_model_spec(str(file)).to_json().replace(', "assumptions": {}', "")
    assert "assumptions" not in kept
    assert ModelSpec.from_json(kept).assumptions == ()
