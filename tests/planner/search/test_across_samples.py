"""A loss that looks across its micro-batch: plans keep it, or a warning says otherwise."""

import pytest

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.planner.plan.question import Choices, Machine, Question, Work
from gpuplan.planner.search.across_samples import across_samples_warnings, kept_micro_batch
from gpuplan.planner.search.batch_rule import global_batch_of
from gpuplan.planner.search.search import search
from gpuplan.planner.search.search_space import space_of
from gpuplan.profiles.profile import Affine, Profile

FREE = Choices()


@pytest.fixture
def contrastive(toy: Profile) -> Profile:
    return toy.model_copy(update={"mixes_samples": True, "default_micro_batch": 48})


@pytest.mark.parametrize(
    ("changes", "choices", "global_batch", "kept"),
    [
        ({}, FREE, None, 48),
        ({}, FREE, 96, 48),
        ({}, FREE, 64, None),
        ({}, Choices(micro_batches=(16,)), 96, None),
        ({"mixes_samples": False}, FREE, 96, None),
        ({"default_micro_batch": None}, FREE, 96, None),
    ],
    ids=["free batch", "divides", "does not divide", "asked for", "other model", "no default"],
)
def test_the_micro_batch_of_the_file_is_kept_where_it_can_be(
    contrastive: Profile, changes: dict, choices: Choices, global_batch: int, kept: int | None
) -> None:
    profile = contrastive.model_copy(update=changes)
    assert kept_micro_batch(profile, choices, global_batch) == kept


def test_the_warning_says_what_was_kept_or_how_to_keep_one(contrastive: Profile) -> None:
    (kept,) = across_samples_warnings(contrastive, FREE, 96)
    assert "all plans keep the file's 48 samples on each device" in kept
    # A note of the Profile says what is compared with what.
    assert "compares" not in kept
    (mixed,) = across_samples_warnings(contrastive, FREE, 64)
    assert "another objective and are not alike; fix it with --micro-batch N" in mixed
    assert across_samples_warnings(contrastive, Choices(micro_batches=(8, 16)), 64) == [mixed]
    assert across_samples_warnings(contrastive, Choices(micro_batches=(8,)), 64) == []
    plain = contrastive.model_copy(update={"mixes_samples": False})
    assert across_samples_warnings(plain, FREE, 64) == []


def test_a_loss_of_distances_keeps_its_micro_batch_as_one_of_products_does(
    contrastive: Profile,
) -> None:
    """`cdist` multiplies nothing that the trace sees mix; its matrix grows with the square."""
    step = contrastive.steps[0]
    square = {"kind": "pointwise", "dims": {"elements": Affine(-6, 5)}}  # B² at 2 and 3 samples
    distances = step.segments[0].kernels[0].model_copy(update=square)
    loss = step.segments[0].model_copy(
        update={"kernels": (distances,), "phase": "forward", "block": None}
    )
    steps = (step.model_copy(update={"segments": (loss, *step.segments[1:])}),)
    profile = contrastive.model_copy(update={"mixes_samples": False, "steps": steps})
    assert kept_micro_batch(profile, FREE, 96) == 48
    assert across_samples_warnings(profile, FREE, 96) == across_samples_warnings(
        contrastive, FREE, 96
    )


def test_the_batch_of_the_rule_is_made_of_whole_micro_batches(contrastive: Profile) -> None:
    rule = global_batch_of(contrastive, Work(), None)
    assert rule.samples == 4096
    space = space_of(Question(), contrastive)
    assert space.micro_batches.tolist() == [48]
    assert space.global_batch is not None and space.global_batch % 48 == 0
    assert abs(space.global_batch - rule.samples) <= 24
    assert space.batch.rule == f"{rule.rule}, in micro-batches of 48"
    large = contrastive.model_copy(update={"default_micro_batch": 8192})
    batch = space_of(Question(), large).batch
    assert (batch.samples, batch.rule) == (
        8192,
        f"the file's micro-batch, as {rule.rule} are fewer",
    )
    given = space_of(Question(work=Work(global_batch=64)), contrastive)
    assert given.global_batch == 64 and len(given.micro_batches) > 1


def test_all_plans_train_what_the_file_trains(contrastive: Profile) -> None:
    question = Question(
        work=Work(samples=1e6, global_batch=48 * 64),
        machine=Machine(providers=("aws",), accelerators=("A100", "T4"), max_nodes=2),
        choices=Choices(recomputes=("none",), precisions=("bf16-amp",)),
    )
    found = search(question, contrastive, load_catalogue())
    assert {plan.micro_batch for plan in found.plans} == {48}
    assert len(found.warnings) == 1 and found.warnings[0] in found.notes
    other = contrastive.model_copy(update={"mixes_samples": False})
    free = search(question, other, load_catalogue())
    assert free.warnings == ()
    assert {plan.micro_batch for plan in free.plans} != {48}
