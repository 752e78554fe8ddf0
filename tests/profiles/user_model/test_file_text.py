"""What the text of a user's file tells without running it."""

from pathlib import Path

import pytest

from gpuplan.catalog.errors import UserFileError
from gpuplan.profiles.user_model.file_text import (
    ModelClass,
    contract_lines,
    model_classes,
    parse,
)

IDS = "torch.randint(1000, (batch_size, 128))"


@pytest.mark.parametrize(
    ("forward", "batch", "scored"),
    [
        (("x",), "torch.randn(batch_size, 3, 224, 224), torch.randint(10, (batch_size,))", True),
        (("input_ids",), f"{IDS}, torch.randint(10, (batch_size,))", True),
        (("input_ids", "labels"), f"{IDS}, {IDS},", False),
        (
            ("x", "targets"),
            "torch.randn(batch_size, 3, 224, 224), torch.randint(10, (batch_size,)),",
            False,
        ),
    ],
)
def test_the_lines_around_a_class_feed_it_by_the_names_of_its_arguments(
    forward: tuple[str, ...], batch: str, scored: bool
) -> None:
    """A class that takes the labels computes its loss itself."""
    lines = contract_lines(ModelClass(name="Net", required=(), forward=forward))
    assert f"    return ({batch})" in lines
    assert ("def compute_loss" in lines) == scored


def test_what_an_embedding_takes_is_integers(tmp_path: Path) -> None:
    """A language model with an argument called x was to be fed images."""
    text = """
class Net(nn.Module):
    def __init__(self, width):
        self.words = nn.Embedding(32000, width)
        self.project = nn.Linear(width, width)
    def forward(self, x, y):
        return self.project(self.words(x)) + self.project(y)
"""
    (found,) = model_classes(text, tmp_path / "net.py")
    assert found.looked_up == ("x",)
    assert f"return ({IDS}, torch.randn(batch_size, 3, 224, 224), " in contract_lines(found)


@pytest.mark.parametrize("line", ["%matplotlib inline", "!pip install timm"])
def test_commands_of_a_notebook_are_told_to_be_left_out(tmp_path: Path, line: str) -> None:
    with pytest.raises(UserFileError) as refused:
        parse(f"import torch\n{line}\n", tmp_path / "notebook.py")
    assert refused.value.fix == "leave lines out that begin with % or !: a notebook's alone."


def test_a_time_step_is_one_number_a_sample() -> None:
    lines = contract_lines(ModelClass(name="Net", required=(), forward=("x", "t")))
    assert "torch.randint(1000, (batch_size,)), torch.randint(10, (batch_size,)))" in lines
