"""Which devices run a torch file as it is, and which need a port or a build first."""

import pytest

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.planner.plan.question import Choices, Machine, Question, Work
from gpuplan.planner.search.machines.runs_here import stands_apart
from gpuplan.planner.search.search import search
from gpuplan.profiles.profile import Profile

CATALOGUE = load_catalogue()


@pytest.mark.parametrize(
    ("name", "port"),
    [
        ("TPU-v5e", "XLA"),
        ("Trainium1", "XLA"),
        ("Gaudi1", "Gaudi's torch"),
        ("Gaudi2", "Gaudi's torch"),
        ("A100-40GB-SXM", None),
        ("MI300X", None),
    ],
)
def test_a_device_that_a_torch_file_does_not_run_on_names_its_port(
    toy: Profile, name: str, port: str | None
) -> None:
    accelerator = CATALOGUE.accelerators[name]
    assert accelerator.port_to == port
    if port is not None:
        assert stands_apart(accelerator, toy)


def test_a_plan_on_gaudi_is_never_the_first(toy: Profile) -> None:
    """Its machines may be the cheapest; the file's CUDA calls do not run there."""
    question = Question(
        machine=Machine(accelerators=("Gaudi1", "H100"), providers=("aws",), max_nodes=1),
        work=Work(samples=1e8),
        choices=Choices(precisions=("bf16-amp",), recomputes=("none",)),
    )
    plans = search(question, toy, CATALOGUE).plans
    gaudi = [plan for plan in plans if plan.offer.accelerator == "Gaudi1"]
    assert gaudi and plans[0].offer.accelerator != "Gaudi1"
    for plan in gaudi:
        assert plan.needs_port and plan.runnable is False
        assert "Gaudi's torch" in (plan.why_not_runnable or "")
