"""The sweep over sites: every offer, node count, layout, precision, recompute and micro-batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from ...catalog.vocabulary import FrozenPrecision, Offloaded, Precision, Stack
from ...profiles.missing_numerics import KNOWN, NEVER_TRACED
from ...profiles.profile import NUMERICS_OF_PRECISION
from ..hardware.cluster import Site
from ..offload.host_copies import NOTHING
from ..plan.answer.answer_parts import Rejected
from ..plan.layout import Layout
from ..plan.question import Question
from ..plan.setup import Setup
from ..predict.input_wait import is_input_known
from ..predict.kept.model_cache import ModelCache
from ..software.kept_memory import runs_compiler
from ..software.stack import casts_layers
from ..software.versions import reduction_features
from .answer.ranking import grouping
from .candidate import Candidate
from .found import Found
from .frozen_ways import keeps_frozen, ways_to_try, without_needless_nf4
from .layouts.data_parallel import USUAL_FRAGMENTATION, DataParallelPredictor
from .layouts.data_parallel_outcome import DataParallelOutcome
from .layouts.same_kernels import by_kernels
from .layouts.tried_layouts import tried_layouts
from .machines.equal_machines import Sellers, by_machine
from .machines.offers import Market, PricedInstance
from .machines.tpu_slice import can_be_rented
from .model_parallel import HandLayouts
from .progress import Progress, untold
from .search_space import Space, drives, precisions_for, stack_for
from .splits.kept_outcomes import KeptOutcomes, layouts_text
from .splits.outcome import Asked, Outcome
from .splits.rows import Kind
from .splits.split_search import SplitSearch
from .whole_work import WholeWork

WORTH_SPLITTING = 0.99
"""Share of the fastest data-parallel step that one which splits the model must not take longer
than. Within 1 % the simpler layout is planned, as the smaller of two micro-batches is."""


class Sweep:
    """Walks the space once, yields feasible candidates and counts the others."""

    def __init__(
        self,
        question: Question,
        cache: ModelCache,
        space: Space,
        market: Market,
        *,
        offload: frozenset[Offloaded] = NOTHING,
        on_progress: Progress = untold,
    ) -> None:
        self.question = question
        self.on_progress = on_progress
        self.offload = offload
        self.cache = cache
        self.space = space
        self.market = market
        self.counts = dict.fromkeys(Rejected.model_fields, 0)
        self.counts["no_spec"] = market.without_spec
        self.counts["unsupported"] = market.cannot_train
        self.tried = 0
        self._whole = WholeWork(question.work, cache.profile)
        self._sellers = Sellers(by=grouping(question), all_variants=question.all_variants)
        self._data_parallel = DataParallelPredictor(cache=cache, space=space)
        self._by_hand = HandLayouts(cache=cache, space=space)
        given = bool(space.layouts or offload - {"optimizer"}) or space.recompute_share < 1
        self._kept = KeptOutcomes.of(cache, space)
        self._splits = SplitSearch(
            cache=cache,
            space=space,
            kept=self._kept,
            base=self._base,
            given=given,
            on_progress=on_progress,
        )
        self.timed = 0
        """Candidates that split the model and whose step time was computed."""
        self.refusals: set[str] = set()
        """Why hand-given layouts cannot be predicted."""

    def candidates(self) -> Iterator[Candidate]:
        """Yield the best micro-batch of every site, layout and precision that fits."""
        priced, without = self._priced()
        self.counts["no_price"] += without
        knows_input = is_input_known(self.cache.profile)
        groups = by_machine(priced, by_memory=bool(self.offload), by_cpus=knows_input)
        nodes = [choices[0].one_node for choices in groups]
        self._splits.kinds = sorted({Kind(node.per_node, node.domain) for node in nodes})
        for done, choices in enumerate(groups):
            self.on_progress("comparing kinds of machine", done, len(groups))
            yield from self._of_machine(choices)
        self._kept.values.save()
        self.on_progress("comparing kinds of machine", len(groups), len(groups))

    def _priced(self) -> tuple[list[PricedInstance], int]:
        """Return the machines that may be chosen, and how many may not for want of a price."""
        choices = self.market.choices
        priced = [one for one in choices if self.space.fixed or one.may_be_chosen]
        return priced, len(choices) - len(priced)

    def _of_machine(self, choices: list[PricedInstance]) -> Iterator[Candidate]:
        """Yield the best micro-batch of every layout and precision that fits on equal machines."""
        accelerator = choices[0].accelerator
        if self.offload and accelerator.is_cpu:
            return  # Its memory is the host's already.
        profile, asked = self.cache.profile, self.question.choices
        stack = stack_for(accelerator, profile, asked)
        fixed = self.space.fixed
        able = precisions_for(accelerator, profile, asked, fixed=fixed)
        precisions: list[Precision] = [p for p in able if self.cache.multiplies_on(accelerator, p)]
        if len(precisions) < len(able) and self.question.machine.accelerators:
            self.refusals.add(
                f"the step multiplies in fp32 too, for which {accelerator.name} has no known rate"
            )
        ways = ways_to_try(accelerator, stack, precisions, profile, asked)
        if not (drives(stack, accelerator) and ways):
            self.counts["unsupported"] += len(choices)
            return
        found = [
            one
            for precision, frozen in ways
            for one in self._of_device(choices, precision, stack, frozen)
        ]
        if not self.question.all_variants and not asked.frozen_precisions:
            found = without_needless_nf4(found)
        # Layouts that split the model keep frozen parameters as the precision says.
        splits = any(frozen is None for _, frozen in ways)
        if splits and self._splits.may_help(accelerator, precisions[-1], stack):
            yield from self._with_splits(choices, precisions, stack, found)
        else:
            yield from found

    def _of_device(
        self,
        choices: list[PricedInstance],
        precision: Precision,
        stack: Stack,
        frozen: FrozenPrecision | None,
    ) -> Iterator[Candidate]:
        """Yield the fastest variant that fits of every layout.

        Equal machines differ in nothing but their price, so only the cheapest seller's is a
        candidate, unless all variants are asked for.
        """
        site = choices[0].one_node
        layouts = self._layouts(site, len(choices))
        if frozen is not None:
            base = self._base(precision, stack, autocast=True, frozen=frozen)
            layouts = [one for one in layouts if keeps_frozen(one, site.accelerator, base)]
        layouts = self._traced(layouts, precision, stack, len(choices))
        for layout in layouts:
            if not layout.is_data_parallel_only:
                yield from self._of_hand_layout(choices, site, layout, precision, stack)
        data_parallel = [layout for layout in layouts if layout.is_data_parallel_only]
        for same in by_kernels(
            data_parallel,
            stack,
            mixed=NUMERICS_OF_PRECISION[precision] == "amp16",
            sees_loss=self._sees_loss(stack),
            offload=self.offload,
        ):
            base = self._base(precision, stack, autocast=same.autocast, frozen=frozen)
            base = replace(base, by_block=same.by_block)
            yield from self._of_layouts(choices, site, same.layouts, base)

    def _sees_loss(self, stack: Stack) -> bool:
        """Return whether a compiler sees a loss of the model's own, unless it runs by block."""
        compiled = bool(self.question.choices.compile)
        return self.cache.profile.loss_in_model and runs_compiler(stack, compiled=compiled)

    def _traced(
        self, layouts: list[Layout], precision: Precision, stack: Stack, many: int
    ) -> list[Layout]:
        """Return the layouts whose step the Profile holds a trace of; count the others."""
        kept = [
            layout
            for layout in layouts
            if self.cache.holds(precision, autocast=casts_layers(stack, layout, self.offload))
        ]
        if len(kept) < len(layouts):
            self.counts["unsupported"] += many * (len(layouts) - len(kept))
            if not any(note.startswith(KNOWN) for note in self.cache.profile.notes):
                self.refusals.add(NEVER_TRACED)
        return kept

    def _with_splits(
        self,
        choices: list[PricedInstance],
        precisions: Sequence[Precision],
        stack: Stack,
        found: list[Candidate],
    ) -> Iterator[Candidate]:
        """Yield the candidates found, and for every node count the best that split the model.

        Only those are yielded that are faster than every layout of the same nodes that does not,
        by as much as is worth it. Where nobody asked for precisions it is done in the 16-bit one:
        its kernels are no slower and its activations half as large.
        """
        site = choices[0].one_node
        tried = precisions if self.question.choices.precisions else precisions[-1:]
        known = site.inter_link.bytes_per_s is not None
        counts = [n for n in self.space.node_counts if n == 1 or known]
        if not self.question.machine.nodes:
            counts = [n for n in counts if can_be_rented(site, n)]
        places = [[i for i, one in enumerate(found) if one.nodes == nodes] for nodes in counts]
        asked = []
        for nodes, own in zip(counts, places, strict=True):
            safe = (found[i].step_s for i in own if not found[i].is_risky)
            asked.append(Asked(nodes, WORTH_SPLITTING * min(safe, default=float("inf"))))
        max_oom = self.question.money.max_oom
        shown = self._sellers.shown(choices)
        rows = self._splits.outcomes(site, tried, stack, asked, max_oom=max_oom)
        for own, outcomes in zip(places, rows, strict=True):
            for outcome in outcomes:
                fitting = len(choices) * outcome.fitting
                self._count(outcome, len(choices))
                if outcome.found:
                    # The first stands for all that fit.
                    for place, one in enumerate(outcome.found):
                        yield from self._offered(shown, site, one, 0 if place else fitting)
                elif own:
                    known = found[own[0]]
                    standing = known.variants_that_fit + fitting
                    found[own[0]] = replace(known, variants_that_fit=standing)
        yield from found

    def _count(self, outcome: Outcome, many: int) -> None:
        """Count what became of the split layouts of so many equal machines."""
        self.timed += outcome.timed
        self.tried += many * (outcome.fitting + outcome.out_of_memory + outcome.indivisible)
        self.counts["out_of_memory"] += many * outcome.out_of_memory
        self.counts["indivisible"] += many * outcome.indivisible

    def _offered(
        self,
        shown: Sequence[PricedInstance],
        site: Site,
        found: Found,
        fitting: int,
        *,
        is_risky: bool = False,
    ) -> Iterator[Candidate]:
        """Yield what was found on equal machines, at the sellers that are shown of them.

        Args:
            shown: the machines at these sellers.
            site: one machine.
            found: the setup.
            fitting: how many variants that fit it stands for, at all sellers.
            is_risky: whether it may run out of memory with a larger chance than is accepted.
        """
        for choice in shown:
            yield Candidate(
                choice=choice,
                one_node=site,
                base=found.base,
                layout=found.layout,
                micro_batch=found.micro_batch,
                grad_accum=found.grad_accum,
                recompute=found.recompute,
                recompute_share=found.recompute_share,
                step_s=found.step_s,
                over_likely=found.over_likely,
                global_batch=found.global_batch,
                steps=self._whole.steps(found.global_batch),
                is_risky=is_risky,
                checkpoint_bytes=self._whole.checkpoint_bytes(found.base),
                variants_that_fit=fitting // len(shown),
            )

    def _of_hand_layout(
        self,
        choices: list[PricedInstance],
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
        if tried.found is not None:
            shown = self._sellers.shown(choices)
            yield from self._offered(shown, site, tried.found, tried.fitting * many)

    def _of_layouts(
        self,
        choices: list[PricedInstance],
        site: Site,
        layouts: tuple[Layout, ...],
        base: Setup,
    ) -> Iterator[Candidate]:
        outcome = self._data_parallel_outcome(site, layouts, base)
        many, shown = len(choices), self._sellers.shown(choices)
        self.tried += many * outcome.tried
        self.counts["indivisible"] += many * outcome.indivisible
        self.counts["out_of_memory"] += many * outcome.out_of_memory
        for best in outcome.best:
            found, fitting = best.found(layouts, base), best.fitting * many
            yield from self._offered(shown, site, found, fitting, is_risky=best.is_risky)

    def _data_parallel_outcome(
        self, site: Site, layouts: tuple[Layout, ...], base: Setup
    ) -> DataParallelOutcome:
        """Return what became of these layouts, which an earlier search may have found out."""
        max_oom, all_variants = self.question.money.max_oom, self.question.all_variants

        def make() -> DataParallelOutcome:
            tried = tried_layouts(self._data_parallel, site, layouts, base, max_oom=max_oom)
            return DataParallelOutcome.of(
                tried, self.cache, site, layouts, base, all_variants=all_variants
            )

        asked = layouts_text(layouts, base)
        key = ("data-parallel", self._kept.site(site), asked, all_variants, max_oom)
        return DataParallelOutcome.kept(partial(self._kept.values.value, key), make)

    def _layouts(self, site: Site, many: int) -> list[Layout]:
        """Return the layouts to try on one kind of node, over every node count."""
        layouts: list[Layout] = []
        given = self.question.machine.nodes or self.space.layouts
        for nodes in self.space.nodes_of(site.per_node):
            if nodes > 1 and site.inter_link.bytes_per_s is None:
                self.counts["no_topology"] += many
                continue
            tried = self.space.divides_batch(nodes) and can_be_rented(site, nodes)
            if not (given or tried):
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

    def _base(
        self,
        precision: Precision,
        stack: Stack,
        *,
        autocast: bool,
        frozen: FrozenPrecision | None = None,
    ) -> Setup:
        """Return a setup with everything but the layout, the batch and the recompute policy."""
        return Setup(
            layout=Layout(),
            precision=precision,
            micro_batch=1,
            stack=stack,
            compile=bool(self.question.choices.compile),
            autocast=autocast,
            frozen_precision=frozen,
            features=reduction_features(
                self.question.choices.reduce_dtype,
                stack,
                precision,
                autocast=autocast,
                offload=self.offload,
            ),
            offload=self.offload,
            recompute_share=self.space.recompute_share,
        )
