"""How a model is named: what cannot be read is refused where it is named."""

from pathlib import Path

import pytest

from gpuplan.catalog.errors import UsageError
from gpuplan.profiles.user_model.spec import parse_input, parse_model_spec, parse_params


@pytest.mark.parametrize("name", ["m\udce9.py", "d\udce9/model.py"])
def test_a_path_that_is_not_utf_8_is_refused(tmp_path: Path, name: str) -> None:
    """It ended in a fault of gpuplan where the trace, or the plan, was kept."""
    path = tmp_path / name  # Refused by its name: that there is no such file is not looked at.
    with pytest.raises(UsageError, match="is not UTF-8") as refused:
        parse_model_spec(str(path))
    str(refused.value).encode()


def test_a_path_in_any_alphabet_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "ünï 模型.py"
    path.write_text("")
    assert parse_model_spec(str(path)).path == path


@pytest.mark.parametrize("item", ["layers=", "layers= "])
def test_a_param_without_a_value_is_refused_by_its_name(item: str) -> None:
    """The file got an empty text, and its own TypeError was all that was said."""
    with pytest.raises(UsageError, match="--param layers= has no value"):
        parse_params([item])
    assert parse_params(['name=""']) == {"name": ""}


def test_bytes_of_images_are_an_input() -> None:
    assert parse_input("4,84,84:uint8").dtype == "uint8"


def test_a_label_is_one_number_a_sample() -> None:
    label = parse_input(":int64")
    assert label.shape == ()
    assert parse_input(label.text) == label
    for text in ("", ":", ":int63"):
        with pytest.raises(UsageError, match="--input"):
            parse_input(text)
