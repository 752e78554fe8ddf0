"""An odd vocabulary costs a part of the step that the answer names, with a width that would not."""

from pathlib import Path

import pytest

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.catalog.vocabulary import Precision
from gpuplan.planner.plan.question import Choices, Machine, Question, Work
from gpuplan.planner.search.search import search
from gpuplan.profiles.profile import Profile
from gpuplan.profiles.tracing_process.service import make_profile
from gpuplan.profiles.user_model.spec import parse_model_spec

EXAMPLES = Path(__file__).parents[4] / "examples"
ODD, EVEN = 50257, 50304


def traced(vocabulary: int) -> Profile:
    params = {"layers": 2, "hidden": 768, "heads": 12, "seq_len": 256, "vocab": vocabulary}
    spec = parse_model_spec(str(EXAMPLES / "gpt2.py"), params=params)
    return make_profile(spec, numerics=("fp32", "amp16"))


@pytest.fixture(scope="module")
def profiles() -> dict[int, Profile]:
    """Return a small GPT-2 by its vocabulary."""
    return {vocabulary: traced(vocabulary) for vocabulary in (ODD, EVEN)}


def notes_of(
    profile: Profile,
    device: str,
    *,
    precision: Precision = "bf16-amp",
    compiled: bool = False,
) -> list[str]:
    question = Question(
        work=Work(samples=1e6),
        machine=Machine(accelerators=(device,), max_nodes=1),
        choices=Choices(micro_batches=(8,), precisions=(precision,), compile=compiled),
    )
    notes = search(question, profile, load_catalogue()).notes
    return [note for note in notes if "odd number" in note]


def test_an_odd_vocabulary_is_named_with_the_width_that_would_be_fast(
    profiles: dict[int, Profile],
) -> None:
    (note,) = notes_of(profiles[ODD], "H100-80GB-SXM")
    assert "50,257 wide" in note and "A width of 50,304" in note and "on H100-80GB-SXM" in note


@pytest.mark.parametrize(
    ("vocabulary", "precision", "compiled"),
    [(EVEN, "bf16-amp", False), (ODD, "tf32", False), (ODD, "bf16-amp", True)],
)
def test_nothing_is_said_where_nothing_is_lost(
    profiles: dict[int, Profile], vocabulary: int, precision: Precision, compiled: bool
) -> None:
    device = "H100-80GB-SXM"
    assert not notes_of(profiles[vocabulary], device, precision=precision, compiled=compiled)
