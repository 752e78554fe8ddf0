"""Layouts that split the model, asked for by hand, through the search."""

from pathlib import Path

import pytest

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.planner.plan.layout import parse_layout
from gpuplan.planner.plan.question import Choices, Machine, Question, Work
from gpuplan.planner.search.outcome import SearchOutcome
from gpuplan.planner.search.search import search
from gpuplan.profiles.profile import Profile
from gpuplan.profiles.tracing_process.service import make_profile
from gpuplan.profiles.user_model.spec import parse_model_spec

EXAMPLE = Path(__file__).parents[3] / "examples" / "decoder.py"
DIMS = {"layers": 4, "hidden": 512, "heads": 4, "kv_heads": 4, "ffn": 2048, "vocab": 1024}


@pytest.fixture(scope="module")
def profile() -> Profile:
    spec = parse_model_spec(str(EXAMPLE), params={**DIMS, "seq_len": 512, "ffn_kind": "swiglu"})
    return make_profile(spec, numerics=("amp16", "fp32", "pure16"), use_cache=False)


def ask(profile: Profile, layout: str, nodes: int = 1, **work: int) -> SearchOutcome:
    question = Question(
        work=Work(**work),  # pyright: ignore[reportArgumentType]
        machine=Machine(accelerators=("H100:8",), providers=("aws",), nodes=(nodes,)),
        choices=Choices(layouts=(parse_layout(layout),), precisions=("bf16-amp",)),
    )
    return search(question, profile, load_catalogue())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layout", "nodes", "part"),
    [
        ("dp4.tp2", 1, "tensor_comm"),
        ("fsdp2.tp4.sp", 1, "tensor_comm"),
        ("dp4.tp2.pp2", 2, "pipeline_bubble"),
    ],
)
def test_a_split_model_has_a_plan_that_adds_up(profile, layout, nodes, part) -> None:
    (plan,) = ask(profile, layout, nodes, global_batch=64).plans
    parts = plan.breakdown_s.model_dump()
    assert str(plan.layout) == layout
    assert plan.global_batch == 64
    assert parts[part] > 0
    assert sum(v for v in parts.values() if v is not None) == pytest.approx(plan.step_time_s.value)


@pytest.mark.slow
def test_a_layout_that_the_model_does_not_allow_says_why(profile: Profile) -> None:
    outcome = ask(profile, "dp1.tp8", global_batch=64)
    assert outcome.plans == ()
    assert outcome.rejected.unsupported > 0
    assert any("8" in note and "divide" in note for note in outcome.notes)
