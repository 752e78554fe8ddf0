"""Today's setting, from the question that names it; what it leaves out is taken from the file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from ....catalog.errors import UsageError
from ....catalog.listing.own_machine import ASSUMED
from ....catalog.names import shown_instance
from ....catalog.snapshot import Catalogue
from ....catalog.vocabulary import OPTIMIZERS, FrozenPrecision, Precision
from ....profiles.profile import Profile
from ...plan.layout import Layout
from ...plan.plan import ANYWHERE, Plan
from ...plan.question import Choices, Machine, Money, Question, Work
from ...plan.setup import Setup
from ...search.frozen_ways import KEPT_AS
from ...search.layouts.some_layers import asked_share
from ...search.machines.offers import PricedInstance, survey
from ...search.search_space import file_precision, stack_for
from ...software.frozen_base import why_not_kept
from ...software.stack import casts_layers
from ...software.versions import reduction_features
from .assumed_batch import batch_by_rule
from .own_recompute import own_recompute
from .setting import Setting

T = TypeVar("T")


def setting_of(
    question: Question,
    profile: Profile,
    catalogue: Catalogue,
    *,
    frozen: FrozenPrecision | None = None,
) -> tuple[Setting, tuple[str, ...]]:
    """Return the setting that a question names, and what was taken where it names nothing.

    Args:
        question: the machine by instance type or accelerator, and at most one of each choice.
        profile: the traced model, which says what the file does itself.
        catalogue: offers and devices.
        frozen: how the model's config keeps what is not trained, where the question does not say.

    Raises:
        UsageError: no machine is named or none such is sold, several are named of what there is
            one, or the batch does not divide.
    """
    assumed: list[str] = []
    choices = question.choices
    choice = _machine(question, catalogue, assumed)
    layout = _layout(choices, question.machine, choice, assumed)
    nodes = layout.accelerators // choice.one_node.per_node
    micro_batch, grad_accum = _batch(question, profile, layout, assumed)
    stack = stack_for(choice.accelerator, profile, choices)
    if choices.compile is None and choices.stack is None and stack == "torch-compile":
        assumed.append("torch.compile, as the file does")
    precision = _precision(choices, profile, assumed)
    offload = frozenset(choices.offload or ())
    setup = Setup(
        layout=layout,
        precision=precision,
        micro_batch=micro_batch,
        grad_accum=grad_accum,
        recompute=_one("recompute", choices.recomputes) or "none",
        recompute_share=asked_share(choices, profile),
        frozen_precision=KEPT_AS[_one("frozen-precision", choices.frozen_precisions) or "fp32"],
        stack=stack,
        compile=stack == "torch-compile",
        optimizer=None if choices.optimizer == profile.optimizer.name else choices.optimizer,
        features=reduction_features(
            choices.reduce_dtype,
            stack,
            precision,
            autocast=casts_layers(stack, layout, offload),
            offload=offload,
        ),
        offload=offload,
    )
    if not choices.optimizer:
        assumed.append(f"optimizer {profile.optimizer.name}, as in the file")
    if (own := own_recompute(profile)) is not None:
        assumed.append(f"recompute of {own}")
    if frozen is not None and not choices.frozen_precisions:
        kept = replace(setup, frozen_precision=frozen)
        if why_not_kept(kept, choice.accelerator) is None:
            setup = kept
            assumed.append(f"what is not trained in {frozen}, as the config's dtype says")
    return Setting(choice=choice, nodes=nodes, setup=setup), tuple(assumed)


def question_of(plan: Plan, work: Work | None = None) -> Question:
    """Return the question that names a plan as today's setting.

    Args:
        plan: what an estimate answered.
        work: how much is trained; None: what the plan trains.
    """
    samples = None if plan.run is None else plan.run.trained_samples
    is_spot = plan.offer.purchase == "spot"
    return Question(
        work=work or Work(samples=samples),
        machine=Machine(
            providers=(plan.offer.provider,),
            regions=(plan.offer.region,),
            instances=(plan.offer.instance_type,),
            nodes=(plan.nodes,),
        ),
        choices=Choices(
            layouts=(plan.layout,),
            micro_batches=(plan.micro_batch,),
            grad_accums=(plan.grad_accum,),
            precisions=(plan.precision,),
            recomputes=(plan.recompute,),
            recompute_layers=plan.recompute_layers,
            frozen_precisions=(plan.frozen_precision or "fp32",),
            reduce_dtype=plan.reduce_dtype,
            stack=plan.stack,
            compile=plan.compile if plan.stack.startswith("torch") else None,
            optimizer=plan.optimizer if plan.optimizer in OPTIMIZERS else None,
            offload=plan.offloaded,
        ),
        money=Money(purchase="spot" if is_spot else "on-demand"),
    )


def work_of(work: Work, setting: Setting) -> Work:
    """Return the work with its batch left open, and steps as the samples of that many steps.

    A change of the global batch then trains on as many samples as today's setting.
    """
    if work.steps is not None:
        return Work(samples=work.steps * setting.global_batch)
    return replace(work, global_batch=None, global_batch_tokens=None)


def _one(name: str, given: Sequence[T]) -> T | None:
    """Return the only one; None where none is given."""
    if len(given) > 1:
        raise UsageError(
            f"{len(given)} of {name} are given, and today's setting has one.",
            fix="give one.",
        )
    return given[0] if given else None


def _names(given: Sequence[str]) -> list[str]:
    """Return the names, of which one text may hold several, as the catalogue reads them."""
    return [name.strip() for text in given for name in text.split(",") if name.strip()]


def _machine(question: Question, catalogue: Catalogue, assumed: list[str]) -> PricedInstance:
    machine = question.machine
    name = _one("accelerator", _names(machine.accelerators))
    instance = _one("instance", _names(machine.instances))
    if name is None and instance is None:
        raise UsageError(
            "The machine of today's setting is not given.",
            fix="give --on H100:8, --instance with the type of machine, or --plan.",
        )
    found = survey(catalogue, machine, question.money).choices
    if not found and not machine.providers:
        everywhere = replace(machine, providers=("all",))
        found = survey(catalogue, everywhere, question.money).choices
    found = tuple(one for one in found if not one.accelerator.is_cpu)
    if not found:
        raise UsageError(
            f"No offer has {instance or name}.",
            fix="see what there is with `gpuplan offers`, or describe it in a file for --offers.",
        )
    layout, nodes = _one("layout", question.choices.layouts), _one("nodes", machine.nodes)
    if layout is not None:
        fitting = [one for one in found if layout.accelerators % one.one_node.per_node == 0]
        # Of "H100" and fsdp8 one node of eight is meant rather than eight nodes of one.
        exact = [o for o in fitting if o.one_node.per_node * (nodes or 1) == layout.accelerators]
        found = tuple(exact or fitting) or found
    chosen = min(_connected(found, layout, nodes), key=_order)
    if len(found) > 1 or instance is None:
        network = "" if chosen is min(found, key=_order) else " and a known network"
        offer = chosen.offer
        where = "" if offer.region == ANYWHERE else f" {offer.region}"
        name = shown_instance(offer.provider, offer.instance_type)
        kind = f"{chosen.one_node.per_node} × {chosen.accelerator.name}"  # noqa: RUF001
        if offer.source == ASSUMED:
            assumed.append(f"a machine of your own, as nobody sells {kind} in one")
        else:
            assumed.append(f"{offer.provider} {name}{where}, the cheapest with {kind}{network}")
    return chosen


def _connected(
    found: Sequence[PricedInstance], layout: Layout | None, nodes: int | None
) -> list[PricedInstance]:
    """Return the machines of which so many can be predicted: one, or with a known network."""

    def many(one: PricedInstance) -> int:
        return nodes or (1 if layout is None else layout.accelerators // one.one_node.per_node)

    known = [o for o in found if many(o) < 2 or o.one_node.inter_link.bytes_per_s is not None]
    if not known:
        cheapest = min(found, key=_order)
        offer = cheapest.offer
        name = shown_instance(offer.provider, offer.instance_type)
        raise UsageError(
            f"How fast the network between {many(cheapest)} machines {name} of"
            f" {offer.provider} is, is not known, so that no step on them can be predicted.",
            fix="give another --provider or --instance, or describe yours in a file for --offers.",
        )
    return known


def _order(choice: PricedInstance) -> tuple[int, bool, float]:
    usd = choice.usd_per_hour
    return choice.one_node.per_node, usd is None, float(usd or 0)


def _layout(
    choices: Choices, machine: Machine, choice: PricedInstance, assumed: list[str]
) -> Layout:
    per_node = choice.one_node.per_node
    layout, nodes = _one("layout", choices.layouts), _one("nodes", machine.nodes)
    if layout is None:
        layout = Layout(data=(nodes or 1) * per_node)
        if layout.accelerators > 1:
            assumed.append(f"layout {layout}")
        return layout
    wanted = None if nodes is None else nodes * per_node
    if layout.accelerators % per_node or wanted not in (None, layout.accelerators):
        machines = "machines" if nodes is None else f"{nodes} machines"
        raise UsageError(
            f"Layout {layout} is of {layout.accelerators} accelerators, which {machines} of"
            f" {per_node} do not make.",
            fix=f"give a --layout of a multiple of {per_node} accelerators, and its --nodes.",
        )
    return layout


def _batch(
    question: Question, profile: Profile, layout: Layout, assumed: list[str]
) -> tuple[int, int]:
    """Return (micro-batch, accumulation); without any, the batch by the rule in one piece."""
    size = _one("micro-batch", question.choices.micro_batches)
    accum = _one("grad-accum", question.choices.grad_accums)
    wanted = _global_batch(question.work, profile)
    if size is None and wanted is not None and accum is not None:
        size = max(1, wanted // (accum * layout.data))
    by_rule = batch_by_rule(question, profile)
    if by_rule is not None and by_rule.samples is not None:
        return max(1, by_rule.samples // layout.data), 1
    if size is None:
        size = profile.default_micro_batch or 1
        where = ", the default of make_batch" if profile.default_micro_batch else ""
        assumed.append(f"micro-batch {size:,}{where}")
    if accum is None:
        accum = 1 if wanted is None else max(1, wanted // (size * layout.data))
        if wanted is None:
            assumed.append("no gradient accumulation")
    made = size * accum * layout.data
    if wanted not in (None, made):
        raise UsageError(
            f"A global batch of {wanted:,} samples is not micro-batch {size:,} × accumulation"  # noqa: RUF001
            f" {accum:,} × {layout.data:,} data-parallel ranks, which make {made:,}.",  # noqa: RUF001
            fix=f"give --global-batch {made}, or another --micro-batch or --grad-accum.",
        )
    return size, accum


def _global_batch(work: Work, profile: Profile) -> int | None:
    """Return the samples of an optimizer step, where they are given."""
    if work.global_batch_tokens is None:
        return work.global_batch
    if not profile.tokens_per_sample:
        raise UsageError(
            "The global batch is given in tokens, and the file does not say how many a sample has.",
            fix="set TOKENS_PER_SAMPLE in the file, or give --global-batch in samples.",
        )
    return max(1, round(work.global_batch_tokens / profile.tokens_per_sample))


def _precision(choices: Choices, profile: Profile, assumed: list[str]) -> Precision:
    given = _one("precision", choices.precisions)
    if given is not None:
        return given
    own = file_precision(profile)
    where = "as torch does unless it is told otherwise" if own is None else "as in the file"
    assumed.append(f"precision {own or 'fp32'}, {where}")
    return own or "fp32"
