"""Which models have trained weights to start from, by their name or by their file."""

from pathlib import Path

import pytest

from gpuplan import api
from gpuplan.api.models.from_weights import has_weights, with_start
from gpuplan.planner.plan.question import Question, Work


@pytest.mark.parametrize(
    ("text", "has"),
    [
        ("def pretrained_weights(base=1):\n    return base\n", True),
        ("def build_model():\n    pretrained_weights = 1\n", False),
        ("def (:\n", False),
    ],
)
def test_a_file_that_names_its_weights_has_some(tmp_path: Path, text: str, has: bool) -> None:
    path = tmp_path / "model.py"
    path.write_text(text, encoding="utf-8")
    assert has_weights(api.model(path)) is has


def test_a_config_has_weights_and_the_question_says_so() -> None:
    question = Question(work=Work(tokens=5e7))
    assert with_start(question, api.model("hf:gpt2")).work.from_weights
    assert with_start(question, None) is question
