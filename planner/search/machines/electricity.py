"""The electricity of a candidate: power of its nodes, its building, its grid; unknown is None."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ....catalog.listing.ownership import Ownership
from ....catalog.types import Accelerator, Instance, Provider, Region
from ....catalog.units import SECONDS_PER_HOUR
from ...cost.start_up import run_without_start_s, start_up_s
from ...energy.carbon import Grid, Pue, energy_kwh, grid_of, kg_co2e, per_million, pue_of
from ...energy.power import NodePower, Ranged, modelled_power, stated_power
from ...plan.plan import Plan, PlanEnergy, RunCost


@dataclass(frozen=True, kw_only=True)
class Electricity:
    """What is known of the electricity of one instance type in one region."""

    accelerator: Accelerator
    instance: Instance
    seller: Provider | None
    region: Region | None
    owned: Ownership | None
    """What is stated of bought hardware."""

    def power(self, *, busy_share: float = 1.0) -> NodePower | None:
        """Return what one node draws: as its owner states, else modelled; None without a TDP."""
        if self.owned is not None:
            return stated_power(
                training_w=float(self.owned.power_w), idle_w=float(self.owned.idle_power_w)
            )
        if self.accelerator.tdp_w is None:
            return None
        return modelled_power(
            tdp_w=self.accelerator.tdp_w,
            accelerators=int(self.instance.accelerators),
            vcpus=self.instance.vcpus,
            host_memory_bytes=self.instance.memory_bytes,
            busy_share=busy_share,
        )

    @property
    def pue(self) -> Pue:
        """That of bought hardware or of its seller's fleet, else of data centres at large."""
        if self.owned is not None:
            return pue_of(float(self.owned.pue))
        return pue_of(None if self.seller is None else self.seller.pue)

    @property
    def grid(self) -> Grid | None:
        """What the region's grid emits; None where that is not known."""
        return grid_of(self.region)

    @cached_property
    def kg_co2e_per_node_s(self) -> tuple[float, float] | None:
        """Kilograms that a node emits a second, in training and before it; None: not known.

        As if kernels ran all the time: thousands of candidates are ranked by it, and what they
        wait for is looked at in those that are finished.
        """
        power, grid = self.power(), self.grid
        if power is None or grid is None:
            return None
        second, none = Ranged.exactly(1.0), Ranged.exactly(0.0)
        trained = energy_kwh(power, nodes=1, training_s=second, pue=self.pue)
        waited = energy_kwh(power, nodes=1, training_s=none, idle_s=1.0, pue=self.pue)
        return trained.value * grid.kg_co2e_per_kwh, waited.value * grid.kg_co2e_per_kwh


def with_energy(plan: Plan, electricity: Electricity) -> Plan:
    """Return a plan with the electricity of its run, and what that rests on.

    Without them where the power of its machine is not known.
    """
    power = electricity.power(busy_share=busy_share(plan))
    if power is None:
        return plan
    pue, grid = electricity.pue, electricity.grid
    energy = _plan_energy(plan, power, pue, grid)
    run = None if plan.run is None else _run_energy(plan, plan.run, power, pue, grid)
    return plan.model_copy(update={"energy": energy, "run": run})


def busy_share(plan: Plan) -> float:
    """Return the part of a step in which the devices run kernels, 0..1.

    In the rest they wait for collectives, copies, the host, their input or another stage. An
    optimizer in host memory steps on the host's processors.
    """
    parts = plan.breakdown_s
    busy_s = parts.compute + parts.memory_bound
    if "optimizer" not in plan.offloaded:
        busy_s += parts.optimizer
    whole_s = sum(value or 0.0 for _, value in parts)
    return min(1.0, busy_s / whole_s) if whole_s > 0 else 1.0


def _plan_energy(plan: Plan, power: NodePower, pue: Pue, grid: Grid | None) -> PlanEnergy:
    step_s = Ranged.exactly(plan.step_time_s.value)
    kwh = energy_kwh(power, nodes=plan.nodes, training_s=step_s, pue=pue).value
    kg = None if grid is None else kwh * grid.kg_co2e_per_kwh
    tokens = None
    if plan.tokens_per_s is not None:
        tokens = plan.global_batch * plan.tokens_per_s / plan.samples_per_s
    return PlanEnergy(
        basis=power.basis,
        node_power_w=power.training_w.value,
        node_power_w_low=power.training_w.low,
        node_power_w_high=power.training_w.high,
        pue=pue.range.value,
        pue_low=pue.range.low,
        pue_high=pue.range.high,
        pue_is_assumed=pue.is_assumed,
        grid_kg_co2e_per_kwh=None if grid is None else grid.kg_co2e_per_kwh,
        grid_year=None if grid is None else grid.year,
        grid_source=None if grid is None else grid.source,
        kwh_per_million_samples=kwh / plan.global_batch * 1e6,
        kg_co2e_per_million_samples=per_million(kg, plan.global_batch),
        kg_co2e_per_million_tokens=per_million(kg, tokens),
    )


def _run_energy(plan: Plan, run: RunCost, power: NodePower, pue: Pue, grid: Grid | None) -> RunCost:
    step = plan.step_time_s
    training_s = Ranged(value=step.value, low=step.low, high=step.high).scaled(run.steps)
    if plan.whole_job is not None:
        # Work that stops cost is done again, so all that the machines run counts as training.
        job = plan.whole_job
        whole_s = (one * SECONDS_PER_HOUR for one in (job.hours, job.hours_low, job.hours_high))
        ran_s, low_s, high_s = run_without_start_s(*whole_s, is_own=plan.offer.is_own)
        training_s = Ranged(value=ran_s, low=low_s, high=high_s)
    energy = energy_kwh(
        power,
        nodes=plan.nodes,
        training_s=training_s,
        idle_s=start_up_s(is_own=plan.offer.is_own),
        pue=pue,
    )
    emitted = kg_co2e(energy, grid)
    return run.model_copy(
        update={
            "energy_kwh": energy.value,
            "energy_kwh_low": energy.low,
            "energy_kwh_high": energy.high,
            "energy_basis": power.basis,
            "kg_co2e": None if emitted is None else emitted.value,
            "kg_co2e_low": None if emitted is None else emitted.low,
            "kg_co2e_high": None if emitted is None else emitted.high,
        }
    )
