"""What the text of a user's file tells without running it."""

import pytest

from gpuplan.profiles.user_model.file_text import ModelClass, contract_lines

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


def test_a_time_step_is_one_number_a_sample() -> None:
    lines = contract_lines(ModelClass(name="Net", required=(), forward=("x", "t")))
    assert "torch.randint(1000, (batch_size,)), torch.randint(10, (batch_size,)))" in lines
