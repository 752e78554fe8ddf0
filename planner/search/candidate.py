"""A candidate of the search: a machine, a setup and a step time, before anything exact is done."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from typing import Literal

from ...catalog.units import SECONDS_PER_HOUR
from ...catalog.vocabulary import Purchase, Recompute
from ..cost.beside_machines.beside import Machines, beside_lines
from ..cost.beside_machines.in_order import BesideUsd, ranked_usd, usd_beside
from ..cost.billing import Lengths, has_long_minimum, mean_billed_us, needs_lengths
from ..cost.paid_whole import MICROSECONDS_PER_SECOND, PaidWhole
from ..cost.run_cost import CENT
from ..cost.start_up import start_up_s
from ..cost.whole_job import expected_usd, training_s_within
from ..goodput.expected_run import chances_within, elapsed_s, mean_stops
from ..goodput.priors import beside_steps_spread
from ..goodput.restarts import Conditions
from ..goodput.spread import DECILE
from ..goodput.stops import Rented, State, conditions_of, stops_of
from ..hardware.cluster import Site
from ..plan.layout import Layout
from ..plan.parts import Estimated, Evaluation
from ..plan.question import Money
from ..plan.runnable import RUN_STACKS
from ..plan.setup import Setup
from ..software.torch_builds import capacity_note
from .machines.offers import PricedInstance
from .order import Order, sort_key

NEAR_USD = Decimal("0.05")
"""Of a budget, within which cents decide: those of the lines that are shown are rounded."""
HALVINGS = 20
"""Of the steps among which those are looked for that a budget pays."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A site, a setup and a price, with its step time before intervals.

    Thousands are made and a few are shown, so the site and the setup are spelled out late.
    """

    choice: PricedInstance
    one_node: Site
    base: Setup
    layout: Layout
    micro_batch: int
    grad_accum: int
    recompute: Recompute
    recompute_share: float = 1.0
    """Part of the layers that are recomputed."""
    step_s: float
    """The likely time of a step."""
    over_likely: float
    """The mean of that time over it: what is expected is counted with the mean."""
    global_batch: int
    steps: int | None
    """Of the whole work; None where no amount of it was given."""
    limited_by: Literal["budget", "deadline"] | None = None
    """What ends the steps, where they are as many as limits allow."""
    checkpoint_bytes: float
    """Of one checkpoint."""
    variants_that_fit: int
    saves_at_notice: bool = True
    """Whether gpuplan's runner may train it, which saves it when a cloud gives notice."""
    is_risky: bool = False
    """Whether it may run out of memory with a larger chance than was asked for."""
    peak_bytes: float = float("inf")
    """Of the fullest device; infinite where nobody orders by it (`peaks.py`)."""

    @property
    def nodes(self) -> int:
        """How many nodes are rented."""
        return self.layout.accelerators // self.one_node.per_node

    @property
    def is_reserved(self) -> bool:
        """Whether its machines are usually had by reservation only."""
        return capacity_note(self.choice.instance, self.choice.purchase) is not None

    @property
    def is_to_be_had(self) -> bool:
        """Whether there are so many: of the user's own, of those held, or in one block."""
        term = self.choice.term
        limits = () if term is None else (term.count, term.most_instances)
        limits = (self.choice.own_nodes, *limits)
        return all(most is None or self.nodes <= most for most in limits)

    @cached_property
    def site(self) -> Site:
        """Where it runs."""
        return replace(self.one_node, nodes=self.nodes)

    @cached_property
    def setup(self) -> Setup:
        """How the step is run."""
        return replace(
            self.base,
            layout=self.layout,
            by_block=False,
            micro_batch=self.micro_batch,
            grad_accum=self.grad_accum,
            recompute=self.recompute,
            recompute_share=self.recompute_share,
        )

    @property
    def rented(self) -> Rented:
        """Its machines, as far as their reliability goes."""
        return self._rented(self.choice.purchase)

    @property
    def rented_on_spot(self) -> Rented:
        """The same machines bought on the spot market."""
        return self._rented("spot")

    @property
    def rented_on_demand(self) -> Rented:
        """The same machines bought on demand."""
        return self._rented("on-demand")

    def _rented(self, purchase: Purchase) -> Rented:
        return Rented.of(
            self.choice.offer,
            accelerator=self.one_node.accelerator,
            accelerators=self.layout.accelerators,
            nodes=self.nodes,
            purchase=purchase,
            own=self.choice.own_stops,
            eviction=self.choice.eviction,
        )

    @property
    def state(self) -> State:
        """What a checkpoint holds."""
        is_ours = self.saves_at_notice and self.base.stack in RUN_STACKS
        step_s = self.step_s if is_ours else None
        return State.of(self.checkpoint_bytes, self.layout, step_s, self.evaluation)

    @cached_property
    def evaluation(self) -> Evaluation | None:
        """What its evaluations take; None where it is not known how many they are."""
        asked = self.choice.evaluations
        if asked is None:
            return None
        return asked.of(
            self.layout.data,
            micro_batch=self.micro_batch,
            global_batch=self.global_batch,
            steps=self.steps,
            recomputed=self.recompute_share if self.recompute == "full" else 0.0,
        )

    @property
    def start_s(self) -> float:
        """What its machines take before they train."""
        return start_up_s(is_own=self.choice.is_own)

    @cached_property
    def stops(self) -> Conditions:
        """How often it is stopped, and what stops and checkpoints take."""
        return conditions_of(self.rented, self.state, start_s=self.start_s)

    @property
    def mean_step_s(self) -> float:
        """Mean of what a step may take."""
        return self.step_s * self.over_likely

    @cached_property
    def seconds(self) -> float:
        """The whole job from its request, or one sample where no amount of work was given."""
        if self.steps is None:
            return self.step_s / self.global_batch
        return self.start_s + elapsed_s(self.steps * self.mean_step_s, self.stops)

    @cached_property
    def usd_per_hour(self) -> float:
        """All nodes; infinite when the price is unknown, so that it ranks last."""
        usd = self.choice.usd_per_hour
        return float("inf") if usd is None else float(usd) * self.nodes

    @cached_property
    def usd(self) -> float:
        """Dollars of the whole job, or of one sample where no amount of work was given.

        Where limits say how much is trained: the reciprocal of the samples, which ranks alike.
        """
        usd = self.choice.usd_per_hour
        if usd is None:
            return float("inf")
        if self.limited_by is not None:
            return 1 / (self.steps * self.global_batch) if self.steps else float("inf")
        if self.steps is None:
            return self.usd_per_hour / SECONDS_PER_HOUR * self.seconds
        stops = self.stops
        billed_s = self.seconds
        if stops.wait_s:  # Nobody bills a wait for machines.
            stops = replace(stops, wait_s=0.0)
            billed_s = self.start_s + elapsed_s(self.steps * self.mean_step_s, stops)
        return expected_usd(
            billed_s,
            nodes=self.nodes,
            usd_per_hour=float(usd * self.choice.taxed),
            billing=self.choice.billing,
            paid_whole=self.paid_whole,
            chance_within=None if self.paid_whole is None else self._chance_within,
            lengths=self._lengths(billed_s) if needs_lengths(self.choice.billing) else None,
        )

    def _lengths(self, billed_s: float) -> Lengths:
        """Return how long its machines are billed, where bills are rounded up by minutes or hours.

        Args:
            billed_s: on average, start included.
        """
        training_s, start_s = (self.steps or 0) * self.mean_step_s, self.start_s
        share = (billed_s - start_s) / (self.seconds - start_s)
        return Lengths(
            spread_s=training_s
            * math.hypot(self._width - 1 / self._width, beside_steps_spread(self.evaluation)),
            stops=mean_stops(training_s, self.stops),
            chance_within=lambda seconds: self._chance_within((seconds - start_s) / share),
        )

    @property
    def paid_whole(self) -> PaidWhole | None:
        """What is paid whole, used or not; a run that limits end pays no more after it."""
        whole = self.choice.paid_whole
        return whole if whole is None else replace(whole, goes_on=self.limited_by is None)

    @property
    def _width(self) -> float:
        """The factor to either end of 80 % of its step time.

        The step's interval is as wide to either side in logarithms, so its mean tells it; where its
        input may be slower than the step it is wider to that side, and here to both.
        """
        return math.exp(DECILE * math.sqrt(2 * math.log(max(self.over_likely, 1.0))))

    @cached_property
    def _chance_within(self) -> Callable[[float], float]:
        """Seconds from the first step → the chance that the run takes no longer."""
        width = self._width
        value_s = (self.steps or 0) * self.step_s
        training_s = Estimated(
            value=value_s, low=value_s / width, high=value_s * width, basis="analytic"
        )
        return chances_within(training_s, stops_of(self.rented, self.state, start_s=self.start_s))

    @property
    def machines(self) -> Machines:
        """Its machines, as far as what is paid beside them goes."""
        offer, purchase = self.choice.offer, self.choice.purchase
        billing = self.choice.billing
        return Machines(
            provider=offer.provider,
            region=offer.region,
            nodes=self.nodes,
            checkpoint_bytes=self.checkpoint_bytes,
            is_managed=purchase == "spot" and offer.launchable,
            is_owned=purchase == "owned",
            is_paid_whole=self.choice.paid_whole is not None,
            is_host_apart=offer.is_host_apart,
            minimum_s=float(billing.minimum_s or 0) if has_long_minimum(billing) and billing else 0,
        )

    @cached_property
    def beside(self) -> BesideUsd:
        """What is surely paid beside its machines, with its tax."""
        both = usd_beside(self.machines, self.choice.usd_per_hour) + self.choice.dataset
        return both * float(self.choice.taxed)

    @cached_property
    def ranked_usd(self) -> float:
        """The same with what is surely paid beside the machines: what plans are ordered by."""
        if self.steps is None or self.limited_by is not None:
            return self.usd
        return self.usd + self.beside.of(self.seconds / SECONDS_PER_HOUR)

    @cached_property
    def kg_co2e(self) -> float:
        """Kilograms of CO2e of the same work as `usd`; infinite where not known: it ranks last."""
        rates = self.choice.electricity.kg_co2e_per_node_s
        if rates is None or self.steps == 0:
            return float("inf")
        in_training, before = rates
        if self.steps is None:
            return in_training * self.nodes * self.seconds
        kg = self.nodes * (in_training * self.steps * self.mean_step_s + before * self.start_s)
        return kg if self.limited_by is None else kg / (self.steps * self.global_batch)

    def within(self, money: Money) -> Candidate:
        """Return the candidate with as many steps as the limits allow; none may be left."""
        usd = self.choice.usd_per_hour
        if usd is None or money.budget_usd is None:
            return self
        training_s, limit = training_s_within(
            deadline_s=money.deadline_s,
            budget_usd=float(money.budget_usd) - self.beside.at_once_usd,
            nodes=self.nodes,
            # Disks, a controller and a data set are paid for every hour of the job.
            usd_per_hour=float(usd * self.choice.taxed) + self.beside.usd_per_hour / self.nodes,
            billing=self.choice.billing,
            stops=self.stops,
            paid_whole=self.choice.paid_whole,
            start_s=self.start_s,
            tail_s=0.0 if self.beside.tail is None else self.beside.tail.most_s,
        )
        steps = max(0, int(training_s // self.mean_step_s))
        found = replace(self, steps=steps, limited_by=limit)
        is_least = limit == "budget" and has_long_minimum(self.choice.billing)
        return found._with_shorter_runs_paid() if is_least and steps else found

    def _with_shorter_runs_paid(self) -> Candidate:
        """Return as many of its steps as leave the mean of the bills what its own time costs.

        Runs that end before the least that is billed pay it all the same.
        """

        def machine_s(steps: int) -> float:
            stops = replace(self.stops, wait_s=0.0)
            return self.start_s + elapsed_s(steps * self.mean_step_s, stops)

        def is_paid(steps: int) -> bool:
            lengths = replace(self, steps=steps)._lengths(machine_s(steps))
            mean_us = round(machine_s(steps) * MICROSECONDS_PER_SECOND)
            tail_s = 0.0 if tail is None else tail.billed_s(machine_s(steps))
            tail_us = round(tail_s * MICROSECONDS_PER_SECOND)
            return mean_billed_us(mean_us, self.choice.billing, lengths) + tail_us <= paid_us

        fewest, most = 0, self.steps or 0
        tail = self.beside.tail
        most_s = 0.0 if tail is None else tail.most_s
        # A bill is rounded up to a second.
        paid_us = round((machine_s(most) + most_s + 1) * MICROSECONDS_PER_SECOND)
        if is_paid(most):
            return self
        for _ in range(HALVINGS):
            middle = (fewest + most) // 2
            fewest, most = (middle, most) if middle and is_paid(middle) else (fewest, middle)
        return replace(self, steps=fewest)

    def breaks(self, money: Money) -> Literal["past_deadline", "over_budget", "no_price"] | None:
        """Return the limit of the question that this candidate breaks, if any.

        No budget is known to be kept on a machine of which no price is known.
        """
        if self.limited_by is not None:
            limit = "past_deadline" if self.limited_by == "deadline" else "over_budget"
            return None if self.steps else limit
        if self.steps is None:
            return None
        if money.deadline_s is not None and self.seconds > money.deadline_s:
            return "past_deadline"
        if money.budget_usd is not None and self._is_over(Decimal(money.budget_usd)):
            return "over_budget" if math.isfinite(self.usd_per_hour) else "no_price"
        return None

    def _is_over(self, budget_usd: Decimal) -> bool:
        """Return whether it costs more than a budget: near it, by the cents that are shown."""
        usd = Decimal(self.ranked_usd)
        if not usd.is_finite() or abs(usd - budget_usd) > NEAR_USD:
            return usd > budget_usd
        choice, hours = self.choice, self.seconds / SECONDS_PER_HOUR
        beside = beside_lines(self.machines, hours=hours, usd_per_hour=choice.usd_per_hour)
        dataset_usd = choice.dataset.of(hours) * float(choice.taxed)
        parts = (self.usd, ranked_usd(beside, choice.tax_percent), dataset_usd)
        return sum(Decimal(one).quantize(CENT) for one in parts) > budget_usd

    def order(self, sort: Order) -> tuple[float, ...]:
        """Return the sort key: what is safe first, the quantity asked for, then dollars, size."""
        return self.is_risky, *sort_key(
            sort,
            cost=self.ranked_usd,
            price=self.usd_per_hour,
            seconds=self.seconds,
            size=self.layout.accelerators,
            peak_bytes=self.peak_bytes,
            samples_per_s=self.global_batch / self.step_s,
            carbon=self.kg_co2e if sort == "carbon" else 0.0,
        )
