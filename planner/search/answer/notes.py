"""What a reader should know of a whole answer, in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal

from ....catalog.listing.own_machine import ASSUMED
from ....catalog.text.money import format_money
from ....catalog.vocabulary import COMMITTED_YEARS, Offloaded
from ....profiles.profile import Profile
from ...cost.beside_machines.beside import most_beside_usd
from ...cost.run_cost import samples_of, steps_of
from ...offload.host_memory import ordered
from ...plan.plan import Plan
from ...plan.question import Question, Work
from ...predict.input_wait import unknown_input_notes
from ..batch_rule import FEW_STEPS, NEAR, AskedBatch, contrastive_notes
from ..candidate import Candidate
from ..machines.offers import Market
from ..search_space import Space


def question_notes(question: Question, space: Space, profile: Profile) -> Iterator[str]:
    """Yield what is to know of the model, its input and its batch."""
    yield from profile.notes
    yield from unknown_input_notes(profile)
    yield from contrastive_notes(profile)
    batch, work = space.batch, question.work
    yield from _other_tokens(batch, work)
    samples = None
    if batch.samples is not None:
        samples = samples_of(work, profile.tokens_per_sample, batch.samples)
    if batch.source == "option" and batch.samples is not None and samples is not None:
        steps = steps_of(samples, batch.samples)
        if steps < FEW_STEPS and work.steps is None:
            yield (
                f"a global batch of {batch.samples:,} samples leaves {steps:,} optimizer"
                f" {'step' if steps == 1 else 'steps'}, which is few for a schedule of the learning"
                " rate; tokens are written --global-batch 0.5M-tokens"
            )


def _other_tokens(batch: AskedBatch, work: Work) -> Iterator[str]:
    """Yield that a batch is not of the tokens that were asked for, where samples are as long."""
    asked, got = work.global_batch_tokens, batch.tokens
    if asked is not None and got is not None and abs(got - asked) > NEAR * asked:
        yield (
            f"a global batch of {asked:,.0f} tokens is no whole number of samples: it is"
            f" {batch.samples:,} of {got / (batch.samples or 1):,.0f} tokens each"
        )


def offload_note(
    question: Question, offload: frozenset[Offloaded], plans: tuple[Plan, ...]
) -> Iterator[str]:
    """Yield that the plans offload, where nobody asked for that."""
    if offload and question.choices.offload is None and plans:
        what = " and ".join(ordered(offload))
        yield (
            f"nothing that was tried fits in device memory, so these plans keep {what} in host"
            " memory: give --offload none to rule that out"
        )


def budget_note(question: Question, plans: Sequence[Plan]) -> Iterator[str]:
    """Yield how a budget counts what of a plan has no known price, where the plans have such."""
    least = [plan for plan in plans if plan.is_lower_bound]
    if question.money.budget_usd is None or not least:
        return
    budget = format_money(question.money.budget_usd)
    open_of = dict.fromkeys(plan.offer.provider for plan in least if _most_beside(plan) is None)
    if open_of:
        yield (
            f"whether plans of {', '.join(open_of)} keep to {budget} is not known: vCPUs and memory"
            " are billed apart there, and nobody says how many come with an accelerator; they are"
            " counted as 4 vCPUs with 16 GB a machine"
        )
    if any(_most_beside(plan) is not None for plan in least):
        others = "other plans" if open_of else "plans"
        yield (
            f"{others} that cost at least (≥) so much likely keep to {budget} even at the dearest"
            " known price of what has none"
        )


def _most_beside(plan: Plan) -> Decimal | None:
    job = plan.whole_job
    return None if job is None else most_beside_usd(job.data_lines)


def own_machines_note(market: Market) -> Iterator[str]:
    """Yield which machines of the user's own have no price, and how it is stated."""
    for choice in market.choices:
        offer = choice.offer
        if choice.usd_per_hour is not None or not choice.may_be_chosen:
            continue
        if offer.source == ASSUMED:
            yield (
                f"nobody sells {offer.accelerators:g} × {offer.accelerator} in one machine, so that"  # noqa: RUF001
                " it is taken as yours, of unknown price; a file for --offers states its price,"
                " links, processors and memory"
            )
        else:
            yield (
                f"{offer.provider} {offer.instance_type} has no price in your file, and its plans"
                " come last: `usd_per_hour` states what an hour costs you, its electricity at least"
            )


def no_terms_note(question: Question, market: Market) -> Iterator[str]:
    """Yield why no machine has a price, where one for a term was asked for."""
    wish = question.money.purchase
    if any(choice.usd_per_hour is not None for choice in market.choices):
        return
    if wish in COMMITTED_YEARS:
        yield (
            f"no price of these machines committed for {COMMITTED_YEARS[wish]} year(s) is known:"
            " the catalogue has those of Google Cloud alone; state yours under `reserved:` of a"
            " file for --pricebook, without a count"
        )
    if wish == "block":
        yield (
            "no price of a capacity block of these machines is known: sellers quote one for each"
            " date (`gpuplan capacity --block` asks AWS); state it under `blocks:` of a file for"
            " --pricebook"
        )
    if wish == "reserved":
        yield (
            "no reserved price of these machines is known: state it under `reserved:` of a file"
            " for --pricebook"
        )


def too_many_for_a_block(question: Question, candidates: list[Candidate]) -> Iterator[str]:
    """Yield that one block holds no more, where nodes that were asked for are more than that."""
    terms = [one.choice.term for one in candidates if not one.is_to_be_had]
    most = max((one.most_instances or 0 for one in terms if one is not None), default=0)
    if question.money.purchase == "block" and most:
        yield (
            f"one capacity block has {most} instances at most: plans on more are left out, because"
            " nobody promises that two blocks are near each other"
        )
