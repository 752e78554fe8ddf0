"""What a project wants of accelerators over time, and when it is done with those it has."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

from ...catalog.errors import UsageError
from ...planner.budget.project.project import PROJECT_FILE, Project
from ...planner.search.progress import Progress, untold
from ..answers import utc_now

if TYPE_CHECKING:
    from ...catalog.clouds.interface import Cloud
    from ...catalog.snapshot import Catalogue
    from ...planner.budget.report.capacity_rows import CapacityOverTime
    from ...planner.budget.schedule import Span
    from ...planner.capacity.commitments import Prices
    from .quotas import AccountQuotas


def capacity_over_time(
    project: str | Path | Project,
    *,
    have: Mapping[str, int] | None = None,
    ask_quota: bool = False,
    offline: bool = False,
    clouds: Mapping[str, Cloud] | None = None,
    folder: Path | None = None,
    on_progress: Progress | None = None,
    on_output: Callable[[str], None] | None = None,
    now: Callable[[], datetime] | None = None,
) -> CapacityOverTime:
    """Return what a project wants of accelerators by month, and what slips with those it has.

    Args:
        project: Its file `gpuplan.yaml`, a folder that holds one, or what `read_project` returned.
        have: Accelerators that there are, by name: {"H100": 64}; of other kinds as many as it
            wants. Default: those that its file names under `have`, and the user's own clusters.
        ask_quota: Ask the clouds, with the user's own account and read requests, how many of the
            machines that runs rent its quota allows; of accelerators in `have` nobody is asked.
        offline: With `ask_quota`: ask nobody, and say that it is not known.
        clouds: By provider, to be asked instead of those of the user's own accounts.
        folder: Where files that the project names are looked for; default: beside its file.
        on_progress: Called with what is being done, how much of it is done, and of how much.
        on_output: Called with what the user's code printed.
        now: The clock; default: the current time in UTC.

    Raises:
        UsageError: The project file is at fault; no run is planned on any kind in `have`, or a run
            needs more than there are.
        NoFeasiblePlanError: An experiment has no feasible plan.
    """
    from ...planner.budget.schedule import refuse_too_late, schedule
    from .project_file import read_project
    from .providers import with_known_providers
    from .runs import Answers

    if not isinstance(project, Project):
        path = Path(project)
        path = path / PROJECT_FILE if path.is_dir() else path
        folder = folder or path.parent
        project = read_project(path)
    tell = on_progress or untold
    answers = Answers(project, folder or Path(), tell, on_output, (now or utc_now)().date())
    project = answers.project = with_known_providers(project, answers.catalogue)
    spans = schedule(tuple(answers.planned()), project)
    refuse_too_late(spans)
    moment = (now or utc_now)()
    quotas = None
    if ask_quota:
        from .quotas import account_quotas, rented_by

        rented = rented_by(spans, _there(have, project, spans, answers.catalogue))
        quotas = account_quotas(
            rented, answers.catalogue, clouds=clouds, offline=offline, now=moment, tell=tell
        )
    return capacity_of(
        project, spans, answers.catalogue, have=have, quotas=quotas, today=moment.date()
    )


def capacity_of(
    project: Project,
    spans: Sequence[Span],
    catalogue: Catalogue,
    *,
    have: Mapping[str, int] | None = None,
    quotas: AccountQuotas | None = None,
    today: date | None = None,
) -> CapacityOverTime:
    """Return what `capacity_over_time` does, of runs whose times are known.

    Args:
        project: of the runs.
        spans: what `budget.schedule.schedule` returned for it.
        catalogue: names of accelerators, and prices of commitments.
        have: as `capacity_over_time`.
        quotas: of the account; None: it was not asked.
        today: no quota is asked for before it.

    Raises:
        UsageError: as `capacity_over_time`.
    """
    from ...planner.capacity.build import capacity_over_time as built
    from ...planner.capacity.jobs import jobs_of

    jobs = jobs_of(spans, project)
    there = _there(have, project, spans, catalogue)
    prices = _prices(spans, catalogue)
    if quotas is None:
        return built(project, jobs, there, prices)
    return quotas.with_commands(
        built(
            project,
            jobs,
            there,
            prices,
            quotas=quotas.limits,
            quotas_unknown=quotas.unknown,
            today=today,
        )
    )


def _prices(spans: Iterable[Span], catalogue: Catalogue) -> dict[str, Prices]:
    """Return the prices of machines on demand that somebody states a commitment for, with tax."""
    from ...catalog.terms.terms_of_offer import terms_of
    from ...planner.capacity.commitments import Prices
    from ...planner.capacity.jobs import machine_of
    from ...planner.cost.tax import tax_rate

    taxed = 1 + tax_rate(catalogue.pricebook.tax_percent or Decimal(0))

    hourly: dict[str, Decimal] = {}
    for span in spans:
        cost = span.of.chosen()
        machine = machine_of(cost)
        if machine is not None and cost.hour_usd:
            hourly[machine] = cost.hour_usd
    found: dict[str, Prices] = {}
    for offer in catalogue.offers:
        machine = f"{offer.provider} {offer.region} {offer.instance_type}"
        if machine in hourly and machine not in found:
            terms = terms_of(offer, catalogue)
            paid = tuple((one.years, one.usd_per_hour * taxed) for one in terms if not one.is_held)
            if paid:
                found[machine] = Prices(on_demand_usd=hourly[machine] * taxed, terms=paid)
    return found


def _there(
    have: Mapping[str, int] | None, project: Project, spans: Sequence[Span], catalogue: Catalogue
) -> dict[str, int]:
    """Return what there is: as given, else the user's own clusters and what the file names."""
    kinds = {span.of.chosen().accelerator for span in spans}
    if have is not None:
        return _canonical(have, kinds, catalogue)
    return own_accelerators(spans, catalogue) | _canonical(project.have, kinds, catalogue)


def own_accelerators(spans: Iterable[Span], catalogue: Catalogue) -> dict[str, int]:
    """Return the accelerators of the user's own clusters, of kinds that runs have there alone.

    Of a kind that some run rents elsewhere there are as many as are wanted.
    """
    from ...planner.capacity.jobs import place_of

    nodes = {
        f"{provider} {region} {instance_type}": (
            count,
            catalogue.instances[provider, instance_type],
        )
        for (provider, region, instance_type), count in catalogue.own_nodes.items()
    }
    planned = [span.of.chosen() for span in spans]
    elsewhere = {one.accelerator for one in planned if place_of(one) not in nodes}
    kinds = {one.accelerator for one in planned} - elsewhere
    found: dict[str, int] = {}
    for count, instance in nodes.values():
        if instance.accelerator in kinds:
            there = found.get(instance.accelerator, 0)
            found[instance.accelerator] = there + int(count * instance.accelerators)
    return found


def _canonical(
    have: Mapping[str, int], kinds: Collection[str], catalogue: Catalogue
) -> dict[str, int]:
    """Return what there is by the names of the kinds that runs are planned on, and of no others."""
    from ...catalog.names import match_accelerators

    found: dict[str, int] = {}
    for name, count in have.items():
        if count < 1:
            raise UsageError(f"{name}:{count} is no accelerator.", fix="give a number from 1 on.")
        meant = [one for one in match_accelerators(name, catalogue=catalogue) if one in kinds]
        if len(meant) > 1:
            either = " or ".join(meant)
            raise UsageError(f"{name} could be {either}.", fix=f"give one of {either}.")
        if meant and meant[0] in found:
            raise UsageError(f"{meant[0]} is given twice.", fix="give their sum.")
        found |= dict.fromkeys(meant, count)
    if have and not found:
        raise UsageError(
            f"No run is planned on {' or '.join(have)}; runs are planned on"
            f" {', '.join(sorted(kinds))}.",
            fix="name what you have as `accelerator` in the project file, under `defaults`.",
        )
    return found
