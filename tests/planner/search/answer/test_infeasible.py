"""When nothing is feasible, the answer says which choice ruled it out and what is allowed."""

import re
from dataclasses import replace
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pytest

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.catalog.vocabulary import Precision
from gpuplan.planner.plan.layout import parse_layout
from gpuplan.planner.plan.question import Choices, Machine, Money, Question, Work
from gpuplan.planner.search.answer import infeasible, whole_plans
from gpuplan.planner.search.outcome import SearchOutcome
from gpuplan.planner.search.search import search
from gpuplan.profiles.profile import Profile

H100 = Machine(accelerators=("H100:8",), nodes=(1, 2))


def notes_of(toy: Profile, question: Question) -> str:
    question = replace(question, choices=replace(question.choices, recomputes=("none",)))
    outcome = search(question, toy, load_catalogue())
    assert outcome.plans == ()
    return "\n".join(outcome.notes)


def test_a_layout_of_the_wrong_size_is_told_the_right_ones(toy: Profile) -> None:
    choices = Choices(layouts=(parse_layout("fsdp3"),))
    notes = notes_of(toy, Question(machine=H100, choices=choices))
    assert "fsdp3 takes 3 accelerators, but these machines come as 8, 16" in notes


def test_a_precision_without_units_is_told_those_of_the_device(toy: Profile) -> None:
    question = Question(
        machine=Machine(accelerators=("V100-16GB-SXM2",)), choices=Choices(precisions=("bf16",))
    )
    notes = notes_of(toy, question)
    assert "V100-16GB-SXM2 has no units for bf16: give --precision one of fp32, fp16-amp" in notes


def test_an_indivisible_batch_is_told_what_divides(toy: Profile) -> None:
    question = Question(machine=replace(H100, nodes=(2,)), work=Work(global_batch=7))
    assert "give --global-batch a multiple of 16, such as 16" in notes_of(toy, question)
    three = Question(machine=replace(H100, nodes=(3,)), work=Work(global_batch=512))
    assert "a multiple of 24, such as 528" in notes_of(toy, three)


@pytest.mark.parametrize("precision", ["bf16-amp", "fp32"])
def test_an_answer_with_plans_gives_no_such_reason(toy: Profile, precision: Precision) -> None:
    choices = Choices(
        precisions=(precision,), layouts=(parse_layout("fsdp8"),), recomputes=("none",)
    )
    outcome = search(Question(machine=H100, choices=choices), toy, load_catalogue())
    assert outcome.plans
    assert not any("come as" in note or "give --" in note for note in outcome.notes)


def test_an_accelerator_without_a_specification_is_named_as_the_reason(toy: Profile) -> None:
    machine = Machine(instances=("salad-gtx-1050-ti",))
    assert "no specification" in notes_of(toy, Question(machine=machine))


def test_where_only_a_port_keeps_to_the_budget_the_others_are_told_what_they_need(
    toy: Profile,
) -> None:
    def asked(budget: Decimal | None) -> SearchOutcome:
        question = Question(
            machine=Machine(
                providers=("aws", "gcp"), accelerators=("H100:8", "TPU-v5e"), nodes=(1,)
            ),
            choices=Choices(recomputes=("none",), precisions=("bf16-amp",)),
            work=Work(samples=1e9, global_batch=64),
            money=Money(budget_usd=budget),
        )
        return search(question, toy, load_catalogue())

    text = "no machine that runs the file as it is keeps to the limits. The cheapest takes about"
    free = asked(None)
    assert not any(text in note for note in free.notes)
    ported = [one.run.usd for one in free.plans if one.stands_apart and one.run is not None]
    least = min(usd for usd in ported if usd is not None)
    limited = asked(Decimal(str(round(1.1 * float(least), 2))))
    assert limited.plans
    assert any(text in note for note in limited.notes)


def test_where_compiling_keeps_to_the_budget_that_is_said(small_decoder: Profile) -> None:
    free = Question(machine=H100, work=Work(samples=1e9, global_batch=1024))
    catalogue = load_catalogue()

    def usd(choices: Choices) -> Decimal:
        job = search(replace(free, choices=choices), small_decoder, catalogue).plans[0].whole_job
        assert job is not None and job.usd is not None
        return job.usd

    eager, compiled = usd(Choices()), usd(Choices(compile=True))
    assert compiled < eager * Decimal("0.9"), "the case is no case"
    between = (9 * eager + compiled) / 10
    limited = replace(free, money=Money(budget_usd=between))
    said = search(limited, small_decoder, catalogue).nearest_miss or ""
    assert "With torch.compile (--compile)" in said and "within what you gave" in said
    named = replace(limited, choices=Choices(compile=False))
    assert "--compile" not in (search(named, small_decoder, catalogue).nearest_miss or "")
    penny = replace(limited, money=Money(budget_usd=Decimal("0.0001")))
    assert "--compile" not in (search(penny, small_decoder, catalogue).nearest_miss or "")


def test_what_does_not_fit_when_compiled_keeps_to_no_limit(
    small_decoder: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compiled step has memory of its own, which is replayed before it is named."""
    catalogue = load_catalogue()
    free = Question(machine=H100, work=Work(samples=1e9, global_batch=1024))
    job = search(free, small_decoder, catalogue).plans[0].whole_job
    assert job is not None and job.usd is not None
    limited = replace(free, money=Money(budget_usd=job.usd * Decimal("0.9")))
    assert "--compile" in (search(limited, small_decoder, catalogue).nearest_miss or "")
    monkeypatch.setattr(whole_plans, "_finish", lambda *_: None)
    assert "--compile" not in (search(limited, small_decoder, catalogue).nearest_miss or "")


@pytest.mark.parametrize(
    ("usd", "text", "budget"),
    [
        (170_891.3, "$171,000", 206_000),
        (87.3, "$87.30", 105),
        (0.4, "$0.40", 1),
        (1234, "$1,230", 1490),
    ],
)
def test_large_sums_are_said_in_three_digits(usd: float, text: str, budget: int) -> None:
    """ "About $170,891" pretended to be known to the dollar."""
    assert infeasible._about(usd).startswith(text.removesuffix("0"))
    candidate: Any = SimpleNamespace(ranked_usd=usd)
    missed = infeasible._Missed(candidate=candidate, usd=usd, hours=1.0)
    assert missed.budget_words == f"--budget {budget}"


def test_a_budget_that_buys_no_step_is_told_what_one_costs(toy: Profile) -> None:
    question = Question(
        machine=H100,
        choices=Choices(recomputes=("none",)),
        work=Work(global_batch=64),
        money=Money(budget_usd=Decimal("0.01")),
    )
    said = search(question, toy, load_catalogue()).nearest_miss or ""
    assert said.startswith("The set-up and one step take at least about $")


def missed(toy: Profile, money: Money) -> str:
    choices = Choices(recomputes=("none",), precisions=("bf16-amp",))
    question = Question(
        machine=H100, choices=choices, work=Work(samples=1e9, global_batch=64), money=money
    )
    outcome = search(question, toy, load_catalogue())
    assert outcome.plans == ()
    assert outcome.nearest_miss is not None
    return outcome.nearest_miss


def test_a_budget_that_nothing_meets_is_told_the_cheapest_and_what_it_trains(toy: Profile) -> None:
    text = missed(toy, Money(budget_usd=Decimal(20)))
    assert text.startswith("The cheapest takes about $")
    proposed = int(text.split("give --budget ")[1].split(",")[0])
    assert proposed > 20
    assert "or $20.00 trains about" in text or "or $20 trains about" in text
    question = Question(
        machine=H100,
        choices=Choices(recomputes=("none",), precisions=("bf16-amp",)),
        work=Work(samples=1e9, global_batch=64),
        money=Money(budget_usd=Decimal(proposed)),
    )
    assert search(question, toy, load_catalogue()).plans, "what is proposed is enough"


@pytest.mark.parametrize("budget", [20, 95, 400])
def test_what_a_budget_is_said_to_train_can_be_asked_for(toy: Profile, budget: int) -> None:
    """16.9B tokens were named for $500, and asking for those named 16.9B again."""

    def asked(tokens: float) -> SearchOutcome:
        question = Question(
            machine=H100,
            choices=Choices(recomputes=("none",), precisions=("bf16-amp",)),
            work=Work(tokens=tokens, global_batch=64),
            money=Money(budget_usd=Decimal(budget)),
        )
        return search(question, toy, load_catalogue())

    said = asked(1e15).nearest_miss or ""
    number, _, _ = said.rpartition("trains about ")[2].partition(" ")
    tokens = float(number[:-1]) * {"k": 1e3, "M": 1e6, "B": 1e9}[number[-1]]
    plans = asked(tokens).plans
    likely = [ends[1] for plan in plans if (ends := plan.usd_ends) is not None and ends[1]]
    assert likely and min(likely) <= 1.03 * budget, "it was a sum that the plan then passed"
    assert not asked(1.3 * tokens).plans, "it is not much too small either"


def test_the_cheapest_is_said_as_its_plan_says_it(toy: Profile) -> None:
    """The sum of the search, which orders candidates, was 5 % below its plan's."""
    choices = Choices(recomputes=("none",), precisions=("bf16-amp",))
    free = Question(machine=H100, choices=choices, work=Work(samples=1e12, global_batch=64))
    outcome = search(replace(free, money=Money(budget_usd=Decimal(20))), toy, load_catalogue())
    costs = {
        plan.usd_ends[1]: plan
        for plan in search(free, toy, load_catalogue()).plans
        if not plan.stands_apart
    }
    least = min(usd for usd in costs if usd is not None)
    said = outcome.nearest_miss or ""
    assert f"The cheapest takes about {infeasible._about(least)} " in said
    assert costs[least].offer.instance_type in said
    assert outcome.prices is not None, "what was ruled out has prices of some day"


def test_where_budget_and_deadline_are_too_small_both_are_named(toy: Profile) -> None:
    """A deadline was named with which the budget was missed by far."""
    money = Money(budget_usd=Decimal(20), deadline_s=700.0)
    text = missed(toy, money)
    assert text.startswith("Both limits are too small. The fastest takes about ")
    words = text.partition(": give ")[2].split()
    assert words[0] == "--budget" and words[2] == "--deadline"
    enough = Money(budget_usd=Decimal(words[1]), deadline_s=float(words[3].strip("h,min")) * 3600)
    assert words[3].endswith("h,")
    question = Question(
        machine=H100,
        choices=Choices(recomputes=("none",), precisions=("bf16-amp",)),
        work=Work(samples=1e9, global_batch=64),
        money=enough,
    )
    assert search(question, toy, load_catalogue()).plans, "what is proposed is enough"


def test_machines_that_run_the_file_as_it_is_are_named_as_the_cheapest(toy: Profile) -> None:
    """A device that takes the file after a port alone was named, which is never recommended."""
    question = Question(
        machine=Machine(providers=("aws", "gcp"), accelerators=("H100:8", "TPU-v5e"), nodes=(1,)),
        choices=Choices(recomputes=("none",), precisions=("bf16-amp",)),
        work=Work(samples=1e9, global_batch=64),
        money=Money(budget_usd=Decimal("0.5")),
    )
    said = search(question, toy, load_catalogue()).nearest_miss or ""
    assert said.startswith("The cheapest takes about") and "ct5" not in said


def test_a_deadline_that_nothing_meets_is_told_the_fastest(toy: Profile) -> None:
    text = missed(toy, Money(deadline_s=700.0))
    assert text.startswith("The fastest takes about ")
    assert "give --deadline " in text


def test_where_gpuplan_runs_none_of_what_fits_it_says_so_and_why(toy: Profile) -> None:
    question = Question(
        machine=H100, choices=Choices(stack="megatron", recomputes=("none",)), runnable=True
    )
    outcome = search(question, toy, load_catalogue())
    assert outcome.plans == () and outcome.nearest_miss is not None
    assert "gpuplan runs none of them: leave --runnable out" in outcome.nearest_miss
    assert "It was predicted for megatron" in outcome.nearest_miss


def test_where_nobody_sells_what_is_asked_for_it_says_what_is_sold(toy: Profile) -> None:
    def asked(**machine: Any) -> str:
        outcome = search(Question(machine=Machine(**machine)), toy, load_catalogue())
        assert outcome.plans == () and outcome.nearest_miss is not None
        return outcome.nearest_miss

    number = asked(accelerators=("H100:3",))
    assert number.startswith("No offer matches 3 × any H100, sellers that launch can reach; any")
    assert "any H100 is sold as 1, 2, 4 or 8 in one instance, cheapest " in number
    region = asked(accelerators=("H100",), providers=("aws",), regions=("eu-south-2",))
    assert "without --region: " in region and "without --accelerator: " in region
    sellers = asked(accelerators=("RTX-3060",))
    assert "with --provider all: " in sellers and "--launchable" not in sellers


def test_where_nothing_is_sold_on_spot_it_says_so(toy: Profile) -> None:
    """It only said "17 without a price"."""

    def asked(**machine: Any) -> str | None:
        money = Money(purchase="spot")
        outcome = search(Question(machine=Machine(**machine), money=money), toy, load_catalogue())
        assert outcome.plans == ()
        return outcome.nearest_miss

    several = asked(providers=("lambda",))
    begin, fix = "No spot price is known of the", "leave --spot out, or ask other sellers."
    assert re.match(rf"{begin} \d+ types of machine that are asked for: {fix}", several or "")
    one = asked(providers=("lambda",), instances=("gpu_1x_h100_pcie",))
    assert one == f"{begin} machine that is asked for: {fix}"


def test_what_is_within_the_budget_and_does_not_fit_is_not_named(
    toy: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A budget of $2 was told that the cheapest takes $1.73: it ran out of memory when replayed."""
    choices = Choices(recomputes=("none",), precisions=("bf16-amp",))
    machine = Machine(accelerators=("H100:8", "A100-80GB-SXM:8"), nodes=(1,))
    free = Question(machine=machine, choices=choices, work=Work(samples=1e9, global_batch=64))
    jobs = [
        (one.whole_job.usd, one.offer.accelerator, one.offer.instance_type)
        for one in search(free, toy, load_catalogue()).plans
        if one.whole_job is not None and one.whole_job.usd is not None
    ]
    least, small, machine_type = min(jobs)
    assert any(accelerator != small for _, accelerator, _ in jobs), "the case is no case"
    finish = whole_plans._finish

    def replayed(candidate: Any, *rest: Any) -> Any:
        is_small = candidate.one_node.accelerator.name == small
        return None if is_small else finish(candidate, *rest)

    monkeypatch.setattr(whole_plans, "_finish", replayed)
    money = Money(budget_usd=least * Decimal("1.01"))
    said = search(replace(free, money=money), toy, load_catalogue()).nearest_miss or ""
    assert said.startswith("The cheapest takes about") and machine_type not in said


@pytest.mark.parametrize(
    ("most", "advice"), [(1, "more --max-nodes"), (64, "a larger --global-batch")]
)
def test_a_deadline_is_told_more_nodes_only_where_the_fastest_has_them_all(
    toy: Profile, most: int, advice: str
) -> None:
    choices = Choices(recomputes=("none",), precisions=("bf16-amp",))
    question = Question(
        machine=Machine(accelerators=("H100:8",), max_nodes=most),
        choices=choices,
        work=Work(samples=1e9, global_batch=16),
        money=Money(deadline_s=1.0),
    )
    assert advice in (search(question, toy, load_catalogue()).nearest_miss or "")


@pytest.mark.parametrize(("precision", "is_named"), [("fp32", True), ("bf16-amp", False)])
def test_a_missed_budget_names_the_faster_arithmetic_that_was_ruled_out(
    toy: Profile, precision: Precision, is_named: bool
) -> None:
    question = Question(
        machine=replace(H100, nodes=(1,)),
        choices=Choices(recomputes=("none",), precisions=(precision,), compile=False),
        work=Work(samples=1e9, global_batch=64),
        money=Money(budget_usd=Decimal(1)),
    )
    missed = search(question, toy, load_catalogue()).nearest_miss
    assert missed is not None and "give --budget" in missed
    said = "Without --precision fp32 bf16-amp is tried too, of which H100-80GB-SXM has 15 times"
    assert (said in missed) == is_named and ("is tried too" in missed) == is_named


def test_where_memory_rules_everything_out_it_says_what_leaves_more_room(toy: Profile) -> None:
    device = Machine(accelerators=("H100:8",), nodes=(1,))
    choices = Choices(layouts=(parse_layout("dp8"),), micro_batches=(65536,), recomputes=("none",))
    question = Question(machine=device, choices=choices, work=Work(global_batch=65536 * 8))
    outcome = search(question, toy, load_catalogue())
    assert outcome.plans == () and outcome.rejected.out_of_memory
    assert outcome.nearest_miss is not None
    for said in (
        "fits in the memory of H100",
        "leave --layout and --micro-batch and --recompute out, give more --nodes, or take",
        "`gpuplan fits` shows",
    ):
        assert said in outcome.nearest_miss
    free = replace(question, choices=Choices(recomputes=("none",)), work=Work(global_batch=64))
    assert search(free, toy, load_catalogue()).nearest_miss is None
