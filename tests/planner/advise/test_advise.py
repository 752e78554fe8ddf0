"""What to change of today's setting: every change is planned by the prediction itself."""

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from gpuplan.catalog.errors import UsageError
from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.catalog.text.money import format_money
from gpuplan.planner.advise.advise import AdviceOutcome, advise
from gpuplan.planner.advise.answer import HELPING, Change
from gpuplan.planner.advise.changes import proposals
from gpuplan.planner.advise.today.todays_setting import question_of, setting_of
from gpuplan.planner.plan.layout import parse_layout
from gpuplan.planner.plan.question import Choices, Machine, Question, Work
from gpuplan.planner.search.search import search
from gpuplan.profiles.profile import Profile

CATALOGUE = load_catalogue()
P4D = Machine(providers=("aws",), instances=("p4d.24xlarge",))
TODAY = Question(
    work=Work(samples=1e7),
    machine=P4D,
    choices=Choices(micro_batches=(4,), grad_accums=(4,), precisions=("fp32",)),
)


def of_kind(found: AdviceOutcome, kind: str) -> list[Change]:
    return [change for change in found.changes if change.kind == kind]


Make = Callable[..., Profile]


@pytest.fixture(scope="module")
def toy(make_rigid_decoder: Make) -> Profile:
    return make_rigid_decoder()


@pytest.fixture(scope="module")
def advice(toy: Profile) -> AdviceOutcome:
    return advise(TODAY, toy, CATALOGUE)


def test_todays_plan_is_the_one_that_the_search_finds(toy: Profile, advice: AdviceOutcome) -> None:
    fixed = replace(
        TODAY,
        machine=replace(P4D, nodes=(1,)),
        choices=replace(TODAY.choices, layouts=(parse_layout("dp8"),)),
    )
    found = search(fixed, toy, CATALOGUE).plans[0]
    assert advice.today.id == found.id
    assert advice.today_fits


def test_a_change_is_the_plan_that_the_search_finds(toy: Profile, advice: AdviceOutcome) -> None:
    half = next(one for one in of_kind(advice, "precision") if one.plan.precision == "bf16-amp")
    fixed = replace(
        TODAY,
        machine=replace(P4D, nodes=(1,)),
        choices=replace(TODAY.choices, precisions=("bf16-amp",), layouts=(parse_layout("dp8"),)),
    )
    assert half.plan.id == search(fixed, toy, CATALOGUE).plans[0].id
    assert half.verdict == "saves"


def test_it_tells_how_many_changes_are_planned(toy: Profile) -> None:
    told: list[tuple[str, int | None, int | None]] = []
    advise(TODAY, toy, CATALOGUE, on_progress=lambda *one: told.append(one))
    counted = [one[1:] for one in told if one[0] == "changing one thing at a time"]
    assert counted == [(done, len(counted)) for done in range(len(counted))]
    assert any(one[0] == "comparing kinds of machine" for one in told)


def test_one_thing_changes_at_a_time(advice: AdviceOutcome) -> None:
    names = "layout", "precision", "recompute", "compile", "optimizer", "offloaded"
    today = advice.today
    for change in advice.changes:
        if change.kind == "machine":
            assert change.plan.precision == today.precision
            assert change.plan.micro_batch == today.micro_batch
            assert change.plan.global_batch == today.global_batch
            continue
        changed = {name for name in names if getattr(change.plan, name) != getattr(today, name)}
        batch = "micro_batch", "grad_accum"
        if any(getattr(change.plan, name) != getattr(today, name) for name in batch):
            changed.add("batch")
        assert len(changed) == 1, change.text
        if change.kind != "global_batch":
            assert change.plan.global_batch == today.global_batch


def test_what_helps_comes_first_and_saves_what_it_says(advice: AdviceOutcome) -> None:
    places = [
        (one.verdict not in HELPING, one.verdict in HELPING and one.alters_training)
        for one in advice.changes
    ]
    assert places == sorted(places)
    today = advice.today.whole_job
    assert today is not None
    for change in advice.changes:
        job = change.plan.whole_job
        if change.hours_saved is not None and job is not None and change.usd_saved is not None:
            assert change.hours_saved == pytest.approx(today.hours - job.hours)
            assert change.usd_saved == pytest.approx(
                float(today.total_usd or 0) - float(job.total_usd or 0)
            )
            if change.usd_saved > 0 and " of $" in change.gain:
                whole = re.search(r"of (\$[^ ]*\d)", change.gain)
                assert whole and whole[1] == format_money(today.total_usd), change.gain


def test_the_first_line_leaves_the_training_as_it_is(advice: AdviceOutcome) -> None:
    best = next(one for one in advice.changes if one.kind != "machine" and not one.alters_training)
    assert best.verdict == "saves"
    assert advice.headline.startswith(f"Train in {best.plan.precision}: ")
    assert " a step, saves " in advice.headline
    assert "; risk: " in advice.headline


def test_everything_together_beats_every_single_change(advice: AdviceOutcome) -> None:
    together = advice.together
    assert together is not None and together.verdict == "saves"
    assert together.plan.global_batch == advice.today.global_batch
    assert "--provider aws --instance p4d.24xlarge --nodes 1" in together.lines[0]


def test_every_change_of_numbers_says_what_it_risks(advice: AdviceOutcome) -> None:
    for change in advice.changes:
        assert change.lines
        if change.alters_training or change.kind == "precision":
            assert change.risks


def test_without_an_amount_of_work_savings_are_of_a_sample(toy: Profile) -> None:
    found = advise(replace(TODAY, work=Work()), toy, CATALOGUE)
    best = found.changes[0]
    assert best.hours_saved is best.usd_saved is None
    assert best.time_saved_share is not None and best.time_saved_share > 0.1
    assert "a sample" in found.headline


def test_steps_are_the_samples_of_todays_batch(toy: Profile) -> None:
    found = advise(replace(TODAY, work=Work(steps=1000)), toy, CATALOGUE)
    larger = of_kind(found, "global_batch")[0]
    assert found.today.run is not None and larger.plan.run is not None
    assert larger.plan.run.trained_samples == found.today.run.trained_samples
    assert larger.plan.run.steps < found.today.run.steps


def test_what_makes_it_fit_comes_first(make_rigid_decoder: Make) -> None:
    large = make_rigid_decoder(layers=24, hidden=2048)
    question = Question(
        work=Work(samples=1e6),
        machine=Machine(providers=("aws",), instances=("g5.48xlarge",)),
        choices=Choices(micro_batches=(2,), precisions=("bf16-amp",)),
    )
    found = advise(question, large, CATALOGUE)
    assert not found.today_fits
    assert found.headline.startswith("It does not fit: ")
    assert found.changes[0].verdict == "makes_it_fit"
    assert found.changes[0].hours_saved is None
    fsdp = next(one for one in of_kind(found, "sharding") if one.plan.layout.zero_stage == 3)
    assert fsdp.verdict == "makes_it_fit"
    assert {one.verdict for one in found.changes} <= {"makes_it_fit", "does_not_fit"}


def test_where_no_single_change_fits_several_are_proposed(make_rigid_decoder: Make) -> None:
    huge = make_rigid_decoder(layers=32, hidden=4096)
    question = Question(
        machine=Machine(providers=("aws",), instances=("g5.48xlarge",)),
        choices=Choices(micro_batches=(8,), precisions=("fp32",)),
    )
    found = advise(question, huge, CATALOGUE)
    here = [one for one in found.changes if one.kind != "machine"]
    assert {one.verdict for one in here} == {"does_not_fit"}
    assert found.together is None or found.together.verdict == "makes_it_fit"
    said = "several do" if found.together else "Nothing that was tried"
    assert said in found.headline


def test_a_machine_with_fsdp_is_proposed_where_nothing_fits_here(make_rigid_decoder: Make) -> None:
    question = Question(
        machine=Machine(providers=("aws",), accelerators=("L4:1",)),
        choices=Choices(micro_batches=(1,), grad_accums=(16,), precisions=("bf16-amp",)),
    )
    large = make_rigid_decoder(layers=32, hidden=4096)
    found = advise(question, large, CATALOGUE, others=Machine(providers=("aws", "nebius")))
    machines = of_kind(found, "machine")
    assert machines
    assert {one.verdict for one in machines} == {"makes_it_fit"}
    assert any(one.plan.layout.zero_stage == 3 for one in machines)
    assert found.elsewhere is not None and found.elsewhere.startswith("Elsewhere: ")
    assert not of_kind(found, "global_batch")


def test_a_machine_is_proposed_with_a_smaller_micro_batch_where_only_that_fits(
    make_rigid_decoder: Make,
) -> None:
    question = Question(
        work=Work(samples=1e6),
        machine=Machine(providers=("aws",), accelerators=("L4:1",)),
        choices=Choices(micro_batches=(64,), grad_accums=(1,), precisions=("fp32",)),
    )
    found = advise(question, make_rigid_decoder(layers=24, hidden=2048), CATALOGUE)
    assert not found.today_fits
    smaller = [one for one in of_kind(found, "machine") if one.plan.micro_batch < 64]
    assert smaller
    for change in smaller:
        assert change.verdict == "makes_it_fit"
        assert change.plan.global_batch == 64
        assert f"micro-batch 64 → {change.plan.micro_batch}" in change.text
        assert f"--micro-batch {change.plan.micro_batch} " in change.lines[0]


def test_where_not_even_one_sample_fits_today_is_one_sample_at_a_time(
    make_rigid_decoder: Make,
) -> None:
    huge = make_rigid_decoder(layers=32, hidden=4096)
    found = advise(Question(machine=Machine(accelerators=("T4:1",))), huge, CATALOGUE)
    assert not found.today_fits
    assert found.today.micro_batch == 1
    assert found.today.grad_accum == found.today.global_batch


def test_an_input_that_is_waited_for_is_a_change(toy: Profile) -> None:
    setting, _ = setting_of(TODAY, toy, CATALOGUE)
    kinds = {one.kind: one for one in proposals(setting, toy, fits=True, waits=True)}
    assert kinds["input"].setting.site.vcpus is None
    assert setting.site.vcpus is not None
    quiet = proposals(setting, toy, fits=True, waits=False)
    assert "input" not in {one.kind for one in quiet}


def test_another_micro_batch_trains_otherwise_where_the_loss_looks_across_it(toy: Profile) -> None:
    setting, _ = setting_of(TODAY, toy, CATALOGUE)
    contrastive = toy.model_copy(update={"mixes_samples": True})
    for profile in (toy, contrastive):
        found = proposals(setting, profile, fits=True, waits=False)
        others = [one for one in found if one.kind == "micro_batch"]
        assert others
        assert all(one.alters_training == profile.mixes_samples for one in others)
        assert all(bool(one.risks) == profile.mixes_samples for one in others)


def test_a_plan_is_a_setting(toy: Profile, advice: AdviceOutcome) -> None:
    again = advise(question_of(advice.today), toy, CATALOGUE, others=Machine())
    assert again.today.id == advice.today.id
    assert not [said for said in again.assumed if "precision" in said or "layout" in said]


def test_what_is_not_given_is_said(toy: Profile) -> None:
    found = advise(Question(machine=Machine(accelerators=("A100-40GB:8",))), toy, CATALOGUE)
    said = " · ".join(found.assumed)
    for word in ("the cheapest with 8 × A100", "layout dp8", "0.5M tokens", "precision fp32"):  # noqa: RUF001
        assert word in said


def test_a_machine_that_was_taken_has_its_sellers_name(toy: Profile) -> None:
    machine = Machine(accelerators=("GH200:1",), providers=("lambda",))
    _, assumed = setting_of(Question(machine=machine), toy, CATALOGUE)
    assert assumed[0] == "lambda gpu_1x_gh200, the cheapest with 1 × GH200-96GB"  # noqa: RUF001


@pytest.mark.parametrize("device", ["A100-40GB:8", "T4:1"])
def test_a_batch_that_nobody_said_is_that_of_an_estimate(toy: Profile, device: str) -> None:
    question = Question(machine=Machine(accelerators=(device,)))
    found = advise(question, toy, CATALOGUE)
    assert found.today.global_batch == search(question, toy, CATALOGUE).plans[0].global_batch
    assert found.today_fits
    assert (found.today.grad_accum > 1) == (device == "T4:1")
    assert f"micro-batch {found.today.micro_batch}" in found.assumed[-1]


def test_of_several_machines_those_are_taken_whose_network_is_known(toy: Profile) -> None:
    """The cheapest seller of eight H100 says nothing of what joins two such machines."""
    eight = Machine(providers=("all",), accelerators=("H100:8",))
    one, _ = setting_of(Question(machine=eight), toy, CATALOGUE)
    assert one.choice.one_node.inter_link.bytes_per_s is None
    dp16 = Choices(layouts=(parse_layout("dp16"),), micro_batches=(1,), grad_accums=(1,))
    by_nodes = Question(machine=replace(eight, nodes=(2,)))
    for question in (by_nodes, Question(machine=eight, choices=dp16)):
        two, assumed = setting_of(question, toy, CATALOGUE)
        assert two.nodes == 2
        assert two.choice.one_node.inter_link.bytes_per_s is not None
        assert two.choice.offer.instance_type in assumed[0]
        assert assumed[0].endswith("and a known network")
    seller, instance = one.choice.offer.provider, one.choice.offer.instance_type
    named = replace(eight, providers=(seller,), instances=(instance,), accelerators=(), nodes=(2,))
    with pytest.raises(UsageError, match=f"between 2 machines {instance} of {seller} is, is not"):
        advise(Question(machine=named), toy, CATALOGUE)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"machine": Machine()}, "machine of today's setting is not given"),
        ({"machine": replace(P4D, nodes=(1, 2))}, "2 of nodes are given"),
        ({"machine": Machine(accelerators=("H100:8,A100:8",))}, "2 of accelerator are given"),
        ({"work": Work(global_batch=100)}, "which make 128"),
        ({"choices": Choices(layouts=(parse_layout("dp3"),))}, "Layout dp3 is of 3 accelerators"),
        ({"choices": Choices(precisions=("fp32", "tf32"))}, "2 of precision are given"),
        ({"machine": Machine(accelerators=("A100:7",))}, "No offer has A100:7"),
    ],
)
def test_what_is_no_setting_is_refused(toy: Profile, changes: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        advise(replace(TODAY, **changes), toy, CATALOGUE)  # pyright: ignore[reportArgumentType]
