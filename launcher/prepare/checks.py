"""What a launch is made of, and the checks before anything is made of it.

All that is missing is said at once.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from ...catalog.snapshot import Catalogue
from ...catalog.terms.pricebook import Reservation
from ...catalog.types import Provider
from ...planner.plan.plan import Plan
from ...profiles.tracing_process.host_tensors import refuse_host_tensors
from ...profiles.user_model.spec import ModelSpec
from ..lifecycle.engine import Engine
from ..skypilot.interfaces import PLUGIN, refuse_unreachable
from ..skypilot.placement import Place
from ..skypilot.reservations import held_reservation, refuse_more_than_held
from ..store.sourced_plan import SourcedPlan
from ..training_data import launched_data, refuse_unreadable_source
from .missing import keys_here, needs_here
from .money.purchase import Bought
from .preflight import (
    refuse_hourly,
    refuse_missing_packages,
    refuse_missing_script,
    refuse_no_autodown,
    refuse_over_budget,
    refuse_past_deadline,
    refuse_request,
    refuse_unmounted,
    refuse_unwritable_fetch,
)
from .project import Project
from .request import LaunchRequest
from .task.network_plan import asked_interfaces
from .wanted_torch import refuse_torch

Later = Callable[[Plan, LaunchRequest, Sequence[Place]], object]
"""Raises what one who asks for machines would be refused for later: `refuse_all` has it."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a launch is made of, before its machines are bought."""

    given: SourcedPlan
    spec: ModelSpec | None
    project: Project
    catalogue: Catalogue

    @property
    def plan(self) -> Plan:
        """Return the plan that is launched."""
        return self.given.plan

    @property
    def parameters(self) -> int | None:
        """Return how many the model has; None where that is not known."""
        return None if self.given.workload is None else self.given.workload.parameters

    @property
    def billing(self) -> Provider | None:
        """Return how the provider bills; None where that is not known."""
        offer = self.plan.offer
        return self.catalogue.billing_of(offer.provider, offer.instance_type)

    @property
    def reservation(self) -> Reservation | None:
        """Return the reservation that the plan is paid by; None: no such."""
        return held_reservation(self.plan.offer, self.catalogue)


def refuse_asked(
    asked: Asked,
    request: LaunchRequest,
    buy: Callable[[], Bought],
    *,
    engine: Engine | None,
    later: Sequence[Later],
    now: Callable[[], datetime],
) -> None:
    """Refuse what contradicts itself, lacks something here, or costs too much; all at once.

    Raises:
        GpuplanError: it does; as `prepare` says.
    """
    plan, reservation = asked.plan, asked.reservation
    here, last = _of_renting(engine, plan, request, buy, asked.catalogue, later)
    money = lambda: _refuse_machines(plan, buy(), reservation, now=now())  # noqa: E731
    needs = [*here, *_needs(asked.spec, asked.project, request, plan), money]
    refuse_request(plan, request, needs=needs, later=last)


def _of_renting(
    engine: Engine | None,
    plan: Plan,
    request: LaunchRequest,
    buy: Callable[[], Bought],
    catalogue: Catalogue,
    later: Sequence[Later],
) -> tuple[list[Callable[[], object]], list[Callable[[], object]]]:
    """Return the checks of what renting needs, and those for a list alone; none if nobody rents."""
    if engine is None:
        return [], []

    def reach() -> None:
        interfaces = asked_interfaces(plan, buy(), catalogue)
        refuse_unreachable(interfaces, has_plugin=shutil.which(PLUGIN) is not None)

    def last(check: Later) -> None:
        machines = buy()
        check(plan, machines.request, (*machines.places, *machines.fallback))

    listed = [partial(last, one) for one in later]
    return [*needs_here(engine, plan, request), reach], [keys_here(engine, plan), *listed]


def _refuse_machines(
    plan: Plan, machines: Bought, reservation: Reservation | None, *, now: datetime
) -> None:
    """Refuse machines that cannot hold the results, cost too much, end too late or are not held.

    Raises:
        UsageError: results would be lost, or a reservation holds fewer machines.
        LimitError: the worst case costs more, or ends later, than is allowed.
    """
    request = machines.request
    refuse_unmounted(machines.places[0].cloud, request)
    refuse_no_autodown(machines.places[0].cloud, request, managed=request.buys_spot(plan))
    tried = (*machines.places, *machines.fallback)
    refuse_hourly(tried, plan.nodes, request.guard.max_hourly_cost_usd)
    refuse_over_budget(machines.cost, request.guard)
    source = request.deadline_source
    refuse_past_deadline(machines.cost, request.deadline, now=now, source=source)
    refuse_more_than_held(plan, reservation)


def _needs(
    spec: ModelSpec | None, project: Project, request: LaunchRequest, plan: Plan
) -> list[Callable[[], object]]:
    """Return the checks of what the job needs of the project's and the model's files."""
    always: list[Callable[[], object]] = [
        lambda: refuse_torch(project.environment, request),
        lambda: refuse_unwritable_fetch(request),
        lambda: refuse_missing_script(project, request),
    ]
    if request.command is not None or spec is None:
        return always
    synthetic, smoke = request.synthetic, request.guard.smoke
    needs: list[Callable[[], object]] = [
        *always,
        lambda: refuse_unreadable_source(spec),
        lambda: launched_data(spec, synthetic=synthetic, smoke=smoke),
        lambda: refuse_missing_packages(spec, project, request),
    ]
    if not plan.offer.is_cpu:
        needs.append(lambda: refuse_host_tensors(spec))
    return needs
