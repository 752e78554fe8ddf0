"""Search: every offer, node count, layout, precision, recompute policy and micro-batch.

Everything that depends only on the device is computed once per device for all micro-batches and
policies (*variants*); what remains per site and layout is a handful of collectives and vector
operations over the variants. Only the plans that are shown get intervals and an allocator replay.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from decimal import Decimal

import numpy as np

from ..catalog.snapshot import Catalogue
from ..catalog.types import CPU_PREFIX
from ..profiles.optimizers import with_optimizer
from ..profiles.profile import NUMERICS_OF_PRECISION, Profile
from .by_hand import HandLayouts
from .compute import MicroBatchTimes
from .device import capacity_bytes
from .framework_memory import communicators, framework_bytes
from .host_memory import ordered
from .host_side import activations_on_host, data_parallel_host_work, host_bytes
from .layout import Layout
from .market import Choice, Market, survey
from .offload import NOTHING
from .peak import is_roomy, memory_of, memory_parts
from .plan import Offloaded, Plan, Precision, RecomputeKind, Rejected, Stack
from .predict import assemble
from .present import as_plan
from .rank import Candidate, best_of_each_accelerator, headlines, mark_ties
from .request import Question
from .setup import Setup, accumulation_bytes, stack_facts, wire_bytes
from .site import Site
from .space import Space, precisions_for, space_of, stack_for
from .stack import casts_layers
from .step import accumulation_s, optimizer_s, step_times
from .step_parts import step_parts
from .traffic import data_traffic
from .why_not import reasons
from .workbench import Workbench

USUAL_FRAGMENTATION = 1.02
"""Reserved ÷ allocated assumed while searching; the plans shown replay the allocator."""
MOST_PLANS = 100
LAST_RESORTS: tuple[frozenset[Offloaded], ...] = (
    frozenset({"optimizer"}),
    frozenset({"parameters"}),
    frozenset({"parameters", "activations"}),
)
"""What is kept in host memory when nothing fits otherwise, the least first."""


@dataclass(frozen=True, kw_only=True)
class SearchOutcome:
    """The ranked plans of a question, and what became of the other candidates."""

    plans: tuple[Plan, ...]
    feasible: int
    rejected: Rejected
    candidates: int
    headlines: dict[str, str] = field(default_factory=dict)
    """"cheapest", "fastest" and "smallest" → id of the plan."""
    notes: tuple[str, ...] = ()


def search(question: Question, profile: Profile, catalogue: Catalogue) -> SearchOutcome:
    """Return the plans that answer a question, best first.

    Args:
        question: work, machines, layout and money asked for.
        profile: the traced model, with a trace for every precision that may be tried.
        catalogue: offers and devices.

    Raises:
        UsageError: a name in the question is unknown, or amounts contradict each other.
    """
    if question.choices.optimizer:
        profile = with_optimizer(profile, question.choices.optimizer)
    bench = Workbench(profile)
    space = space_of(question, profile)
    market = survey(catalogue, question.machine, question.money, with_cpus=question.vs_cpu)
    asked = question.choices.offload
    sweep = Sweep(question, bench, space, market, offload=frozenset(asked or ()))
    candidates = list(sweep.candidates())
    if asked is None and not space.fixed and not candidates and sweep.counts["out_of_memory"]:
        for offload in LAST_RESORTS:
            last = Sweep(question, bench, space, market, offload=offload)
            candidates = list(last.candidates())
            if candidates:
                sweep = last
                break
    return _outcome(question, bench, space, sweep, candidates)


class Sweep:
    """Walks the space once, yields feasible candidates and counts the others."""

    def __init__(
        self,
        question: Question,
        bench: Workbench,
        space: Space,
        market: Market,
        *,
        offload: frozenset[Offloaded] = NOTHING,
    ) -> None:
        self.question = question
        self.offload = offload
        self.bench = bench
        self.space = space
        self.market = market
        self.counts = dict.fromkeys(Rejected.model_fields, 0)
        self.counts["no_spec"] = market.without_spec
        self.counts["unsupported"] = market.cannot_train
        self.tried = 0
        self._memory: dict[tuple[object, ...], np.ndarray] = {}
        self._seen: dict[tuple[object, ...], Variants] = {}
        self._by_hand = HandLayouts(bench=bench, space=space)
        self.refusals: set[str] = set()
        """Why hand-given layouts cannot be predicted."""

    def candidates(self) -> Iterator[Candidate]:
        """Yield the best micro-batch of every site, layout and precision that fits."""
        for choices in self._sites().values():
            accelerator = choices[0].accelerator
            if self.offload and accelerator.is_cpu:
                continue  # Its memory is the host's already.
            stack = stack_for(accelerator, self.bench.profile, self.question.choices)
            precisions = precisions_for(
                accelerator, self.bench.profile, self.question.choices, fixed=self.space.fixed
            )
            if not precisions:
                self.counts["unsupported"] += len(choices)
            for precision in precisions:
                yield from self._of_device(choices, precision, stack)

    def _sites(self) -> dict[tuple[object, ...], list[Choice]]:
        """Group instance types that differ in nothing but seller and price."""
        sites: dict[tuple[object, ...], list[Choice]] = {}
        for choice in self.market.choices:
            if choice.usd_per_hour is None and not self.space.fixed:
                self.counts["no_price"] += 1
                continue
            instance = choice.instance
            key = (
                choice.accelerator.name,
                int(instance.accelerators),
                instance.intra_link.bytes_per_s,
                instance.inter_link.bytes_per_s,
                instance.inter_link.rdma,
                instance.link_domain_accelerators,
                (instance.memory_bytes, instance.vcpus) if self.offload else None,
            )
            sites.setdefault(key, []).append(choice)
        return sites

    def _of_device(
        self, choices: list[Choice], precision: Precision, stack: Stack
    ) -> Iterator[Candidate]:
        """Yield the fastest variant that fits of every layout.

        Equal machines differ in nothing but their price, so only the cheapest seller's is a
        candidate, unless all variants are asked for.
        """
        instance = choices[0].instance
        site = Site(
            accelerator=choices[0].accelerator,
            per_node=int(instance.accelerators),
            nodes=1,
            intra_link=instance.intra_link,
            inter_link=instance.inter_link,
            link_domain=instance.link_domain_accelerators,
            host_memory_bytes=instance.memory_bytes,
            vcpus=instance.vcpus,
        )
        layouts = self._layouts(site, len(choices))
        for layout in layouts:
            if not layout.is_data_parallel_only:
                yield from self._of_hand_layout(choices, site, layout, precision, stack)
        family = [layout for layout in layouts if layout.is_data_parallel_only]
        for autocast in (True, False):
            same = tuple(
                one for one in family if casts_layers(stack, one, self.offload) == autocast
            )
            if same:
                variants = self._variants(site, precision, stack, autocast=autocast)
                yield from self._of_layouts(choices, site, same, variants)

    def _of_hand_layout(
        self,
        choices: list[Choice],
        site: Site,
        layout: Layout,
        precision: Precision,
        stack: Stack,
    ) -> Iterator[Candidate]:
        """Yield the fastest setup of a layout that splits the model, if one fits."""
        autocast = casts_layers(stack, layout, self.offload)
        base = self._base(precision, stack, autocast=autocast)
        placed = replace(site, nodes=layout.accelerators // site.per_node)
        tried = self._by_hand.try_layout(placed, base, layout, usual=USUAL_FRAGMENTATION)
        many = len(choices)
        if tried.refusal is not None:
            self.refusals.add(tried.refusal)
            self.counts["unsupported"] += many
            return
        self.tried += many * tried.setups
        self.counts["out_of_memory"] += many * tried.out_of_memory
        self.counts["indivisible"] += many * tried.indivisible
        if tried.best is None:
            return
        shown = choices if self.question.all_variants else [min(choices, key=_price)]
        for choice in shown:
            yield Candidate(
                choice=choice,
                one_node=site,
                base=base,
                layout=layout,
                micro_batch=tried.best.micro_batch,
                grad_accum=tried.best.grad_accum,
                recompute=tried.best.recompute,
                step_s=tried.step_s,
                global_batch=tried.best.micro_batch * tried.best.grad_accum * layout.data,
                variants_that_fit=tried.fitting * many // len(shown),
            )

    def _of_layouts(
        self, choices: list[Choice], site: Site, layouts: tuple[Layout, ...], variants: Variants
    ) -> Iterator[Candidate]:
        accum, divisible = self._accumulation(layouts, variants.micro_batch)
        fits = divisible & self._fits(site, layouts, variants.base, accum)
        many = len(choices)
        shown = choices if self.question.all_variants else [min(choices, key=_price)]
        self.tried += many * fits.size
        self.counts["indivisible"] += many * int((~divisible).sum())
        self.counts["out_of_memory"] += many * int((divisible & ~fits).sum())
        total_s = self._step_s(site, layouts, variants, accum)
        data = np.array([[layout.data] for layout in layouts])
        batch = variants.micro_batch * data * accum
        rate = np.where(fits, batch / total_s, -np.inf)
        best = rate.argmax(axis=1)
        for row, fitting in self._rows_to_show(layouts, rate).items():
            layout, column = layouts[row], int(best[row])
            for choice in shown:
                yield Candidate(
                    choice=choice,
                    one_node=site,
                    base=variants.base,
                    layout=layout,
                    micro_batch=int(variants.micro_batch[column]),
                    grad_accum=int(accum[row, column]),
                    recompute=variants.recompute[column],
                    step_s=float(total_s[row, column]),
                    global_batch=int(batch[row, column]),
                    variants_that_fit=fitting * many // len(shown),
                )

    def _rows_to_show(self, layouts: tuple[Layout, ...], rate: np.ndarray) -> dict[int, int]:
        """Return rows of layouts to show, with how many variants that fit each stands for.

        The same nodes cost the same, so a slower layout of them is neither cheaper nor faster: only
        the fastest is shown, unless all variants are asked for.
        """
        fitting = (rate > 0).sum(axis=1)
        top = rate.max(axis=1)
        rows = [row for row in range(len(layouts)) if fitting[row]]
        if self.question.all_variants:
            return {row: int(fitting[row]) for row in rows}
        groups: dict[int, list[int]] = {}
        for row in rows:
            groups.setdefault(layouts[row].accelerators, []).append(row)
        return {
            max(group, key=lambda row: top[row]): int(fitting[group].sum())
            for group in groups.values()
        }

    def _layouts(self, site: Site, many: int) -> list[Layout]:
        """Return the layouts to try on one kind of node, over every node count."""
        layouts: list[Layout] = []
        for nodes in self.space.node_counts:
            if nodes > 1 and site.inter_link.bytes_per_s is None:
                self.counts["no_topology"] += many
                continue
            layouts += self.space.layouts_for(nodes, site.per_node)
        if "parameters" in self.offload:
            one_rank = Layout(zero_stage=3)
            layouts = [one_rank if layout == Layout() else layout for layout in layouts]
            for layout in self.space.layouts:
                if layout.accelerators > 1 and layout.zero_stage != 3:
                    self.refusals.add(f"parameters are offloaded by FSDP, which {layout} is not")
            layouts = [layout for layout in layouts if layout.zero_stage == 3]
        return layouts

    def _variants(
        self, site: Site, precision: Precision, stack: Stack, *, autocast: bool
    ) -> Variants:
        setup = self._base(precision, stack, autocast=autocast)
        key = (site.accelerator.name, precision, stack, autocast)
        if key not in self._seen:
            sizes = self.space.micro_batches
            times = self.bench.times(
                site.accelerator,
                precision,
                self.space.recomputes,
                stack=stack_facts(setup),
                micro_batches=sizes,
            )
            self._seen[key] = Variants(
                base=setup,
                times=MicroBatchTimes.stack([one.micro_batch() for one in times]),
                recompute=[r for r in self.space.recomputes for _ in sizes],
                micro_batch=np.tile(sizes, len(self.space.recomputes)),
            )
        return self._seen[key]

    def _base(self, precision: Precision, stack: Stack, *, autocast: bool) -> Setup:
        """Return a setup with everything but the layout, the batch and the recompute policy."""
        return Setup(
            layout=Layout(),
            precision=precision,
            micro_batch=1,
            stack=stack,
            compile=bool(self.question.choices.compile),
            autocast=autocast,
            offload=self.offload,
        )

    def _accumulation(
        self, layouts: tuple[Layout, ...], micro_batch: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return ([L, V] accumulation steps, [L, V] whether they make the global batch exactly)."""
        at_once = micro_batch * np.array([[layout.data] for layout in layouts])
        wanted = self.space.global_batch
        if self.space.grad_accums:
            accum = np.full_like(at_once, self.space.grad_accums[0])
        elif wanted is None:
            accum = np.ones_like(at_once)
        else:
            accum = np.maximum(wanted // at_once, 1)
        if wanted is None:
            return accum, np.ones(accum.shape, dtype=bool)
        return accum, accum * at_once == wanted

    def _fits(
        self, site: Site, layouts: tuple[Layout, ...], base: Setup, accum: np.ndarray
    ) -> np.ndarray:
        """Return [L, V] whether the device can hold the peak."""
        peak = self._peaks(layouts, base, accumulates=False)
        if (accum > 1).any():
            peak = np.where(accum > 1, self._peaks(layouts, base, accumulates=True), peak)
        framework = {
            n: framework_bytes(site.accelerator, communicators=n)
            for n in {communicators(layout, base.stack) for layout in layouts}
        }
        outside = np.array([[framework[communicators(layout, base.stack)]] for layout in layouts])
        fits = peak * USUAL_FRAGMENTATION + outside <= capacity_bytes(site.accelerator)
        if self.offload and site.host_memory_bytes is not None:
            activations = self._activations_on_host(base)
            on_host = host_bytes(self.bench, base, layouts, activation_bytes=activations)
            fits = fits & (on_host * site.per_node <= site.host_memory_bytes)
        return fits

    def _activations_on_host(self, base: Setup) -> np.ndarray:
        """Return [V] bytes of one micro-batch's activations that are offloaded."""
        setups = [
            replace(base, recompute=recompute, micro_batch=int(size))
            for recompute in self.space.recomputes
            for size in self.space.micro_batches
        ]
        return np.array([activations_on_host(self.bench, setup) for setup in setups])

    def _peaks(self, layouts: tuple[Layout, ...], base: Setup, *, accumulates: bool) -> np.ndarray:
        """Return [L, V] allocated peaks; many sites share the same layouts."""
        key = (layouts, base.precision, base.stack, base.autocast, accumulates)
        if key not in self._memory:
            self._memory[key] = np.array(
                [self._peak_bytes(layout, base, accumulates=accumulates) for layout in layouts]
            )
        return self._memory[key]

    def _peak_bytes(self, layout: Layout, base: Setup, *, accumulates: bool) -> np.ndarray:
        """Return [V] allocated peaks; they do not depend on the device."""
        key = (
            NUMERICS_OF_PRECISION[base.precision],
            base.stack,
            base.autocast,
            layout.zero_stage,
            layout.shard,
            layout.data > 1,
            accumulates,
        )
        if key not in self._memory:
            setup = replace(base, layout=layout, grad_accum=2 if accumulates else 1)
            peaks = []
            for recompute in self.space.recomputes:
                shape = self.bench.envelope(
                    base.precision,
                    recompute,
                    self.space.micro_batches,
                    autocast=base.autocast,
                    residence=base.residence,
                )
                peaks.append(memory_of(self.bench, setup, shape).peak_bytes)
            self._memory[key] = np.concatenate(peaks)
        return self._memory[key]

    def _step_s(
        self, site: Site, layouts: tuple[Layout, ...], variants: Variants, accum: np.ndarray
    ) -> np.ndarray:
        """Return [L, V] step times."""
        curves = self.bench.curves(site.accelerator)
        stack = stack_facts(variants.base)
        wire = wire_bytes(variants.base.precision, variants.base.stack)
        parts = step_times(
            variants.times,
            data_traffic(self.bench.units_in(variants.base.stack), layouts, site, curves, wire),
            optimizer_s=optimizer_s(self.bench.profile, layouts, curves, stack),
            step_overhead_s=stack.step_overhead_s,
            grad_accum=accum,
            accumulation_s=accumulation_s(
                self.bench.profile, layouts, curves, accumulation_bytes(variants.base)
            ),
        )
        if not self.offload:
            return parts.total_s
        work = data_parallel_host_work(
            self.bench,
            site,
            variants.base,
            layouts,
            activation_bytes=self._activations_on_host(variants.base),
        )
        return work.added_to(
            parts,
            forward_s=variants.times.forward_s,
            backward_s=variants.times.backward_s,
            grad_accum=accum,
        ).total_s


@dataclass(frozen=True, kw_only=True)
class Variants:
    """One device and precision: kernel times for every recompute policy and micro-batch [V]."""

    base: Setup
    times: MicroBatchTimes
    recompute: list[RecomputeKind]
    micro_batch: np.ndarray


def _price(choice: Choice) -> tuple[bool, Decimal]:
    """Return what choices of equal machines are ordered by; an unknown price comes last."""
    usd = choice.usd_per_hour
    return usd is None, usd or Decimal(0)


def _outcome(
    question: Question,
    bench: Workbench,
    space: Space,
    sweep: Sweep,
    candidates: list[Candidate],
) -> SearchOutcome:
    def plan_of(candidate: Candidate) -> Plan | None:
        return _finish(candidate, question, bench)

    within: list[Candidate] = []
    for candidate in candidates:
        reason = candidate.breaks(question, bench.profile)
        if reason is None:
            within.append(candidate)
        else:
            sweep.counts[reason] += candidate.variants_that_fit
    ranked = best_of_each_accelerator(within, question, bench.profile, plan_of)
    picks = headlines(tuple(ranked))
    top = question.top or MOST_PLANS
    plans = mark_ties(ranked[:top] + [plan for plan in ranked[top:] if _stays(plan, picks)])
    return SearchOutcome(
        plans=plans,
        feasible=sum(c.variants_that_fit for c in within),
        rejected=Rejected(**sweep.counts),
        candidates=sweep.tried,
        headlines=picks,
        notes=(
            *_notes(question, space, bench.profile),
            *sorted(sweep.refusals),
            *_offered(question, sweep, plans),
            *(() if plans else reasons(space, sweep.market, bench.profile, question.choices)),
        ),
    )


def _stays(plan: Plan, picks: dict[str, str]) -> bool:
    """Return whether a plan below the last place asked for is shown all the same."""
    return plan.id in picks.values() or plan.offer.accelerator.startswith(CPU_PREFIX)


def _finish(candidate: Candidate, question: Question, bench: Workbench) -> Plan | None:
    """Return the whole plan of a candidate, its memory checked by replaying the allocator.

    Where the replay shows more fragmentation than the search assumed, the micro-batch is halved
    (and the accumulation doubled, when the global batch is given) until memory is not short.
    """
    fixed_batch = question.work.global_batch or bench.profile.default_micro_batch
    while True:
        setup = candidate.setup
        memory = memory_parts(bench, setup)
        last = setup.micro_batch % 2 or question.choices.micro_batches
        if last or is_roomy(bench, candidate.site, setup, memory):
            parts = step_parts(bench, candidate.site, setup)
            prediction = assemble(bench, candidate.site, setup, parts, memory)
            fits = prediction.fits
            return as_plan(candidate, prediction, bench.profile, question) if fits else None
        accum = candidate.grad_accum * (2 if fixed_batch else 1)
        size = candidate.micro_batch // 2
        candidate = replace(
            candidate,
            micro_batch=size,
            grad_accum=accum,
            global_batch=size * accum * candidate.layout.data,
        )


def _offered(question: Question, sweep: Sweep, plans: tuple[Plan, ...]) -> Iterator[str]:
    """Yield that the plans offload, where nobody asked for that."""
    if sweep.offload and question.choices.offload is None and plans:
        what = " and ".join(ordered(sweep.offload))
        yield (
            f"nothing that was tried fits in device memory, so these plans keep {what} in host"
            " memory: give --offload none to rule that out"
        )


def _notes(question: Question, space: Space, profile: Profile) -> Iterator[str]:
    yield from profile.notes
    if space.global_batch is None and not space.fixed and question.work != type(question.work)():
        yield (
            "the global batch was left free, so each plan uses what its memory holds; large batches"
            " may train worse: give --global-batch"
        )
