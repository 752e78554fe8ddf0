"""A job of minutes on a processor: no cloud is needed, and the answer says so."""

import re

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.planner.cost.start_up import start_up_s
from gpuplan.planner.plan.question import Choices, Machine, Question, Work
from gpuplan.planner.search.outcome import SearchOutcome
from gpuplan.planner.search.search import search
from gpuplan.profiles.profile import Affine, Profile, Segment, StepTrace

SAYS = "your own machine will do"


def asked(profile: Profile, steps: int | None) -> SearchOutcome:
    question = Question(
        work=Work(global_batch=64, steps=steps),
        machine=Machine(providers=("aws",), accelerators=("T4",), max_nodes=1),
        choices=Choices(recomputes=("none",)),
    )
    return search(question, profile, load_catalogue())


def said(found: SearchOutcome) -> list[str]:
    return [note for note in found.notes if note.startswith(SAYS)]


def test_what_a_processor_ends_before_a_machine_has_started_needs_no_cloud(toy: Profile) -> None:
    step_s = toy.flops.per_sample * 64 / 20e9
    (note,) = said(asked(toy, 1))
    assert "gpuplan run" in note and "10 min" in note
    # A rule of thumb has two digits.
    assert all(len(number.replace(".", "")) <= 2 for number in re.findall(r"about ([\d.]+)", note))
    # At the arithmetic alone, so many steps take longer than the start.
    assert said(asked(toy, int(2 * start_up_s() / step_s))) == []


def test_what_a_processor_ends_with_the_rented_machine_needs_no_cloud(toy: Profile) -> None:
    tiny = toy.model_copy(update={"flops": toy.flops.times(1e-6), "steps": _tiny(toy)})
    # Both launch the same kernels, and only one has to start.
    steps = 5
    while not (notes := said(asked(tiny, steps))) or "to start" in notes[0]:
        assert steps < 1e8
        steps *= 2
    assert "the rented machine about" in notes[0] and "with its start" in notes[0]


def test_without_an_amount_of_work_it_is_said_how_much_a_processor_trains(toy: Profile) -> None:
    assert said(asked(toy, None)) == []
    small = toy.model_copy(update={"flops": toy.flops.times(1e-6), "steps": _tiny(toy)})
    (note,) = said(asked(small, None))
    assert note.startswith(f"{SAYS} for up to about ") and "samples" in note


def _tiny(profile: Profile) -> tuple[StepTrace, ...]:
    """Return steps of which nothing is left but the launches of a few kernels."""

    def emptied(segment: Segment) -> Segment:
        kernels = [one.model_copy(update={"flops": Affine(0)}) for one in segment.kernels]
        return segment.model_copy(update={"kernels": tuple(kernels)})

    return tuple(
        step.model_copy(update={"segments": tuple(map(emptied, step.segments))})
        for step in profile.steps
    )
