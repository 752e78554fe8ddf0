"""Search: every offer, node count, layout, precision, recompute policy and micro-batch.

Everything that depends only on the device is computed once per device for all micro-batches and
policies (*variants*); what remains per site and layout is a handful of collectives and vector
operations over the variants. Only the plans that are shown get intervals and an allocator replay.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from ..catalog.errors import GpuplanError
from ..catalog.snapshot import Catalogue
from ..profiles.optimizers import with_optimizer
from ..profiles.profile import NUMERICS_OF_PRECISION, Profile
from .compute import MicroBatchTimes
from .framework_memory import framework_bytes
from .layout import Layout
from .market import Choice, Market, survey
from .memory import rank_memory
from .plan import Plan, Precision, RecomputeKind, Rejected, Stack
from .predict import (
    Setup,
    assemble,
    capacity_bytes,
    communicators,
    memory_parts,
    stack_facts,
    step_parts,
    wire_bytes,
)
from .present import as_plan
from .rank import Candidate, best_of_each_accelerator, headlines, mark_ties
from .request import Question
from .site import Site
from .space import Space, precisions_for, space_of, stack_for
from .step import data_traffic, optimizer_s, step_times
from .workbench import Workbench

USUAL_FRAGMENTATION = 1.02
"""Reserved ÷ allocated assumed while searching; the plans shown replay the allocator."""
MOST_PLANS = 100


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
    sweep = Sweep(question, bench, space, market)
    candidates = list(sweep.candidates())
    return _outcome(question, bench, space, sweep, candidates)


class Sweep:
    """Walks the space once, yields feasible candidates and counts the others."""

    def __init__(self, question: Question, bench: Workbench, space: Space, market: Market) -> None:
        self.question = question
        self.bench = bench
        self.space = space
        self.market = market
        self.counts = dict.fromkeys(Rejected.model_fields, 0)
        self.counts["no_spec"] = market.without_spec
        self.counts["unsupported"] = market.slices
        self.tried = 0
        self._memory: dict[tuple[object, ...], np.ndarray] = {}

    def candidates(self) -> Iterator[Candidate]:
        """Yield the best micro-batch of every site, layout and precision that fits."""
        for choices in self._sites().values():
            accelerator = choices[0].accelerator
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
            )
            sites.setdefault(key, []).append(choice)
        return sites

    def _of_device(
        self, choices: list[Choice], precision: Precision, stack: Stack
    ) -> Iterator[Candidate]:
        accelerator, instance = choices[0].accelerator, choices[0].instance
        per_node = int(instance.accelerators)
        variants = self._variants(choices[0], precision, stack)
        for nodes in self.space.node_counts:
            if nodes > 1 and instance.inter_link.bytes_per_s is None:
                self.counts["no_topology"] += len(choices)
                continue
            site = Site(
                accelerator=accelerator,
                per_node=per_node,
                nodes=nodes,
                intra_link=instance.intra_link,
                inter_link=instance.inter_link,
            )
            for layout in self.space.layouts_for(nodes, per_node):
                if not layout.is_data_parallel_only:
                    self.counts["unsupported"] += len(choices)
                    continue
                yield from self._of_layout(choices, site, layout, variants)

    def _variants(self, choice: Choice, precision: Precision, stack: Stack) -> Variants:
        sizes = self.space.micro_batches
        setup = Setup(
            layout=Layout(),
            precision=precision,
            micro_batch=1,
            stack=stack,
            compile=bool(self.question.choices.compile),
        )
        facts = stack_facts(setup)
        times = [
            self.bench.times(
                choice.accelerator, precision, recompute, stack=facts, micro_batches=sizes
            ).micro_batch()
            for recompute in self.space.recomputes
        ]
        return Variants(
            setup=setup,
            times=MicroBatchTimes.stack(times),
            recompute=[r for r in self.space.recomputes for _ in sizes],
            micro_batch=np.tile(sizes, len(self.space.recomputes)),
        )

    def _of_layout(
        self, choices: list[Choice], site: Site, layout: Layout, variants: Variants
    ) -> Iterator[Candidate]:
        """Yield the fastest variant that fits, priced with each choice's own price."""
        accum, divisible = self._accumulation(layout, variants.micro_batch)
        many = len(choices)
        self.tried += many * len(accum)
        self.counts["indivisible"] += many * int((~divisible).sum())
        fits = divisible & self._fits(site, layout, variants, accum)
        self.counts["out_of_memory"] += many * int((divisible & ~fits).sum())
        if not fits.any():
            return
        total_s = self._step_s(site, layout, variants, accum)
        batch = variants.micro_batch * layout.data * accum
        rate = np.where(fits, batch / total_s, -np.inf)
        best = int(rate.argmax())
        for choice in choices:
            yield Candidate(
                choice=choice,
                site=site,
                setup=Setup(
                    layout=layout,
                    precision=variants.setup.precision,
                    micro_batch=int(variants.micro_batch[best]),
                    grad_accum=int(accum[best]),
                    recompute=variants.recompute[best],
                    stack=variants.setup.stack,
                    compile=variants.setup.compile,
                ),
                step_s=float(total_s[best]),
                global_batch=int(batch[best]),
                variants_that_fit=int(fits.sum()),
            )

    def _accumulation(
        self, layout: Layout, micro_batch: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return ([V] accumulation steps, [V] whether they make up the global batch exactly)."""
        if self.space.grad_accums:
            accum = np.full_like(micro_batch, self.space.grad_accums[0])
        elif self.space.global_batch is None:
            accum = np.ones_like(micro_batch)
        else:
            accum = np.maximum(self.space.global_batch // (micro_batch * layout.data), 1)
        if self.space.global_batch is None:
            return accum, np.ones(len(accum), dtype=bool)
        return accum, accum * micro_batch * layout.data == self.space.global_batch

    def _fits(
        self, site: Site, layout: Layout, variants: Variants, accum: np.ndarray
    ) -> np.ndarray:
        peak = np.where(
            accum > 1,
            self._peak_bytes(layout, variants.setup.precision, accumulates=True),
            self._peak_bytes(layout, variants.setup.precision, accumulates=False),
        )
        framework = framework_bytes(site.accelerator, communicators=communicators(layout))
        return peak * USUAL_FRAGMENTATION + framework <= capacity_bytes(site.accelerator)

    def _peak_bytes(self, layout: Layout, precision: Precision, *, accumulates: bool) -> np.ndarray:
        """Return [V] allocated peaks; they do not depend on the device."""
        key = (
            NUMERICS_OF_PRECISION[precision],
            layout.zero_stage,
            layout.shard,
            layout.data > 1,
            accumulates,
        )
        if key not in self._memory:
            sizes = self.space.micro_batches
            self._memory[key] = np.concatenate(
                [
                    rank_memory(
                        self.bench.envelope(precision, recompute, sizes),
                        self.bench.profile,
                        layout,
                        compute_bytes=wire_bytes(precision).gather,
                        grad_accum=2 if accumulates else 1,
                    ).peak_bytes
                    for recompute in self.space.recomputes
                ]
            )
        return self._memory[key]

    def _step_s(
        self, site: Site, layout: Layout, variants: Variants, accum: np.ndarray
    ) -> np.ndarray:
        curves = self.bench.curves(site.accelerator)
        stack = stack_facts(variants.setup)
        wire = wire_bytes(variants.setup.precision)
        return step_times(
            variants.times,
            data_traffic(self.bench.units, layout, site, curves, wire),
            optimizer_s=optimizer_s(self.bench.profile, layout, curves, stack),
            step_overhead_s=stack.step_overhead_s,
            grad_accum=accum,
        ).total_s


@dataclass(frozen=True, kw_only=True)
class Variants:
    """One device and precision: kernel times for every recompute policy and micro-batch [V]."""

    setup: Setup
    times: MicroBatchTimes
    recompute: list[RecomputeKind]
    micro_batch: np.ndarray


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
    plans = mark_ties(ranked[: question.top or MOST_PLANS])
    return SearchOutcome(
        plans=plans,
        feasible=sum(c.variants_that_fit for c in within),
        rejected=Rejected(**sweep.counts),
        candidates=sweep.tried,
        headlines=headlines(plans),
        notes=tuple(_notes(question, space, bench.profile)),
    )


def _finish(candidate: Candidate, question: Question, bench: Workbench) -> Plan | None:
    """Return the whole plan of a candidate, or None if the exact memory check fails."""
    setup, site = candidate.setup, candidate.site
    sizes = np.array([setup.micro_batch])
    try:
        parts = step_parts(bench, site, setup, sizes, np.array([setup.grad_accum]))
        prediction = assemble(bench, site, setup, parts, memory_parts(bench, setup, sizes), index=0)
    except GpuplanError:
        return None
    if not prediction.fits:
        return None
    return as_plan(candidate, prediction, bench.profile, question)


def _notes(question: Question, space: Space, profile: Profile) -> Iterator[str]:
    yield from profile.notes
    if space.global_batch is None and not space.fixed and question.work != type(question.work)():
        yield (
            "the global batch was left free, so each plan uses what its memory holds; large batches"
            " may train worse: give --global-batch"
        )
