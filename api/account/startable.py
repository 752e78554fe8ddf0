"""Plans held against what the user's account may start: ranked by it, or refused for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...catalog.clouds.interface import Cloud
    from ...catalog.embedded import Catalogue
    from ...catalog.listing.capacity import CapacityLine, CloudAnswer
    from ...catalog.types import Instance
    from ...catalog.vocabulary import OfferPurchase
    from ...launcher.prepare.prepared import Prepared
    from ...launcher.prepare.request import LaunchRequest
    from ...launcher.skypilot.placement import Place
    from ...planner.plan.answer.answer_parts import Recommended
    from ...planner.plan.answer.estimate import Estimate
    from ...planner.plan.plan import Plan

    Tell = Callable[[str, int | None, int | None], None]

CAN_START = "the cheapest that your account can start"
MAY_START = "the cheapest of which it is not known that your account cannot start it"


def by_capacity(
    answer: Estimate,
    *,
    clouds: Mapping[str, Cloud] | None = None,
    now: datetime | None = None,
    on_progress: Tell | None = None,
) -> Estimate:
    """Return the estimate with what the account cannot start below what it can.

    Args:
        answer: The estimate.
        clouds: By provider, to be asked instead of those of the user's own accounts.
        now: With its time zone; None: the clock's.
        on_progress: Called with what is being done, how much of it is done, and of how much.
    """
    from ...catalog.snapshot import load_catalogue

    question = _Asking(load_catalogue(), clouds, now or datetime.now(UTC), on_progress)
    checked = question.checked(answer.plans)
    order = sorted(checked, key=lambda one: (_is_apart(one), one.startable == "no"))
    before = {plan.id: _id_before(answer.plans, plan) for plan in answer.plans}
    plans = [
        plan.model_copy(
            update={
                "position": position,
                "tie_with_previous": plan.tie_with_previous
                and position > 1
                and order[position - 2].id == before[plan.id],
            }
        )
        for position, plan in enumerate(order, start=1)
    ]
    return answer.model_copy(
        update={
            "plans": tuple(plans),
            "recommended": _recommended(answer.recommended, plans),
            "recommended_on_large_clouds": _recommended(answer.recommended_on_large_clouds, plans),
            "notes": (*answer.notes, *question.notes(plans)),
        }
    )


def refuse_without_capacity(
    prepared: Prepared,
    *,
    clouds: Mapping[str, Cloud] | None = None,
    now: datetime | None = None,
    on_progress: Tell | None = None,
    later: Iterable[Callable[[], object]] = (),
) -> tuple[CapacityLine, ...]:
    """Return what is known of the places of a launch; raise where none of them can start it.

    Nothing is refused for want of an answer: what is not known stays allowed. Of a reservation that
    machines are to start in, fewer free machines than are needed are a no.

    Args:
        prepared: The launch.
        clouds: Who is asked; default: those of the catalogue.
        now: When; default: now.
        on_progress: Called with how many places have answered.
        later: What is refused after this, to be listed beside it; no refusal by itself.

    Raises:
        NoCapacityError: Every place says no; the message says why, and what asks for more quota.
        MissingError: So it is, and something of `later` is missing too.
    """
    from ...catalog.snapshot import load_catalogue
    from ...launcher.prepare.missing import refuse_all

    question = _Asking(load_catalogue(), clouds, now or datetime.now(UTC), on_progress)
    spot = prepared.request.buys_spot(prepared.plan)
    lines = _lines_of(question, prepared.plan, prepared.all_places, spot=spot)

    def refuse() -> None:
        _refuse_too_few_held(prepared, lines)
        _refuse_all_no(prepared.plan, lines)

    refuse_all([refuse], later=later)
    return lines


def refuse_no_place(
    plan: Plan,
    request: LaunchRequest,
    places: Iterable[Place],
    *,
    clouds: Mapping[str, Cloud] | None = None,
    now: datetime | None = None,
    on_progress: Tell | None = None,
) -> None:
    """Raise where no place can start a plan whose launch cannot be prepared yet.

    Raises:
        NoCapacityError: As `refuse_without_capacity`, whatever a reservation holds.
    """
    spot = request.buys_spot(plan)
    refuse_nowhere(plan, places, spot=spot, clouds=clouds, now=now, on_progress=on_progress)


def refuse_nowhere(
    plan: Plan,
    places: Iterable[Place],
    *,
    spot: bool,
    clouds: Mapping[str, Cloud] | None = None,
    now: datetime | None = None,
    on_progress: Tell | None = None,
) -> None:
    """Raise where the account can start the machines of a plan in none of its places.

    Raises:
        NoCapacityError: As `refuse_without_capacity`, whatever a reservation holds.
    """
    from ...catalog.snapshot import load_catalogue

    question = _Asking(load_catalogue(), clouds, now or datetime.now(UTC), on_progress)
    _refuse_all_no(plan, _lines_of(question, plan, places, spot=spot))


def _lines_of(
    question: _Asking, plan: Plan, places: Iterable[Place], *, spot: bool
) -> tuple[CapacityLine, ...]:
    """Return what is known of the places of a launch; nothing where nobody can be asked."""
    from ...catalog.clouds.connect import CLOUDS
    from ...launcher.skypilot.placement import OWN_CLUSTERS

    places = tuple(places)
    is_own = any(place.cloud in OWN_CLUSTERS.values() for place in places)
    if is_own or plan.offer.provider not in CLOUDS:
        return ()
    purchase: OfferPurchase = "spot" if spot else "on-demand"
    regions = [place.region for place in places if place.region is not None]
    return tuple(question.lines(plan, regions or [plan.offer.region], purchase))


def _refuse_all_no(plan: Plan, lines: tuple[CapacityLine, ...]) -> None:
    from ...launcher.lifecycle.engine import NoCapacityError

    if not lines or any(line.startable != "no" for line in lines):
        return
    reasons = "; ".join(f"{line.region}: {_why_not(line)}" for line in lines)
    commands = [quota.command for line in lines for quota in line.quotas if quota.command]
    fix = "launch elsewhere (gpuplan capacity says where it can be started)."
    if commands:
        fix = f"ask for more quota with `{commands[0]}`, or {fix}"
    raise NoCapacityError(
        f"Your account cannot start {plan.nodes} × {plan.offer.instance_type}"  # noqa: RUF001
        f" ({reasons}); nothing was rented.",
        fix=fix,
    )


def _refuse_too_few_held(prepared: Prepared, lines: Iterable[CapacityLine]) -> None:
    """Refuse a launch into a reservation with too few free machines: the rest is paid on demand.

    Raises:
        NoCapacityError: it has fewer; the message says how many.
    """
    from ...launcher.lifecycle.engine import NoCapacityError

    config = prepared.task.sky_config or {}
    wanted = {name for one in config.values() for name in one.get("specific_reservations", ())}
    for held in (one for line in lines for one in line.held):
        if held.id in wanted and held.free is not None and held.free < prepared.plan.nodes:
            raise NoCapacityError(
                f"{held.free} of {held.instances} machines of reservation {held.id} are free, and"
                f" {prepared.plan.nodes} are needed: the rest would be rented on demand; nothing"
                " was rented.",
                fix="wait until they are free, or launch with --no-check-capacity.",
            )


@dataclass
class _Asking:
    """One round of questions: each provider is asked once for each way of buying."""

    catalogue: Catalogue
    clouds: Mapping[str, Cloud] | None
    now: datetime
    on_progress: Tell | None

    def __post_init__(self) -> None:
        self.unknown: dict[str, str] = {}

    def checked(self, plans: Iterable[Plan]) -> list[Plan]:
        """Return the plans, each with what is known of it."""
        groups: dict[tuple[str, OfferPurchase], list[Plan]] = {}
        found: dict[str, CapacityLine] = {}
        every = list(plans)
        for plan in every:
            purchase = _purchase(plan)
            if purchase is not None:
                groups.setdefault((plan.offer.provider, purchase), []).append(plan)
        for (_provider, purchase), members in groups.items():
            regions = sorted({plan.offer.region for plan in members})
            said, instances = self._said(members, regions, purchase)
            for plan in members:
                lines = self._lines(said, plan, instances, [plan.offer.region], purchase)
                if lines:
                    found[plan.id] = lines[0]
        return [_marked(plan, found.get(plan.id)) for plan in every]

    def lines(
        self, plan: Plan, regions: Iterable[str], purchase: OfferPurchase
    ) -> list[CapacityLine]:
        """Return what is known of one plan in several regions."""
        wanted = sorted(set(regions))
        said, instances = self._said([plan], wanted, purchase)
        return self._lines(said, plan, instances, wanted, purchase)

    def _said(
        self, plans: list[Plan], regions: list[str], purchase: OfferPurchase
    ) -> tuple[CloudAnswer, dict[str, Instance]]:
        from ...catalog.prices.refresh import asked_of
        from .account_capacity import ask_cloud

        provider = plans[0].offer.provider
        types = {plan.offer.instance_type for plan in plans}
        instances = {
            kind: row
            for (seller, kind), row in self.catalogue.instances.items()
            if seller == provider and kind in types
        }
        asked = asked_of(self.catalogue, provider, regions, instances=instances, now=self.now)
        asked = replace(asked, nodes=max(plan.nodes for plan in plans), purchase=purchase)
        said = ask_cloud(provider, asked, self.clouds, self.unknown, self.on_progress)
        return said, instances

    def _lines(
        self,
        said: CloudAnswer,
        plan: Plan,
        instances: Mapping[str, Instance],
        regions: Iterable[str],
        purchase: OfferPurchase,
    ) -> list[CapacityLine]:
        from ...catalog.listing.capacity import capacity_lines

        kind = plan.offer.instance_type
        return capacity_lines(
            self.catalogue,
            said,
            {kind: instances[kind]} if kind in instances else {},
            regions,
            nodes=plan.nodes,
            purchase=purchase,
            now=self.now,
        )

    def notes(self, plans: Iterable[Plan]) -> list[str]:
        """Return what a reader should know: who was not asked and why, and what cannot start."""
        found = [
            f"whether your account can start plans of {provider} is not known: {why}"
            for provider, why in sorted(self.unknown.items())
        ]
        no = [plan for plan in plans if plan.startable == "no"]
        if no:
            first = no[0]
            more = f" and {len(no) - 1} more plans" if len(no) > 1 else ""
            found.append(
                f"your account cannot start {first.place}{more}, listed last:"
                f" {first.why_not_startable}"
            )
        return found


def _purchase(plan: Plan) -> OfferPurchase | None:
    """Return whose quota a plan needs; None where it needs none that can be asked for."""
    from ...catalog.clouds.connect import CLOUDS

    if plan.offer.provider not in CLOUDS or plan.offer.purchase in ("owned", "block", "reserved"):
        return None
    return "spot" if plan.offer.purchase == "spot" else "on-demand"


def _marked(plan: Plan, line: CapacityLine | None) -> Plan:
    if line is None:
        return plan
    why = _why_not(line) if line.startable == "no" else None
    return plan.model_copy(update={"startable": line.startable, "why_not_startable": why})


def _why_not(line: CapacityLine) -> str:
    """Return why machines cannot be started in one region."""
    if line.offered is False:
        return f"{line.instance_type} is not offered in {line.region}"
    if line.restricted is not None:
        return line.restricted
    short = [quota for quota in line.quotas if quota.enough is False]
    return "; ".join(
        f"{quota.name}: {_used(quota.used)} of {quota.limit:g} {quota.unit} used,"
        f" needs {quota.needed:g}"
        for quota in short
    )


def _used(used: float | None) -> str:
    return "an unknown part" if used is None else f"{used:g}"


def _is_apart(plan: Plan) -> tuple[bool, bool]:
    """Return which block of the list a plan stands in: those of the file, others, processors."""
    return plan.offer.is_cpu, plan.stands_apart


def _id_before(plans: tuple[Plan, ...], plan: Plan) -> str | None:
    place = plans.index(plan)
    return plans[place - 1].id if place else None


def _recommended(old: Recommended | None, plans: list[Plan]) -> Recommended | None:
    """Return the recommendation at its new place, or what is rented where it cannot be started."""
    by_id = {plan.id: plan for plan in plans}
    if old is None or old.id not in by_id:
        return old
    chosen = by_id[old.id]
    if chosen.startable != "no":
        return old.model_copy(update={"position": chosen.position})
    left = [plan for plan in plans if plan.startable != "no" and not any(_is_apart(plan))]
    first = min(left, key=_usd, default=None)
    if first is None or first.whole_job is None or chosen.whole_job is None:
        return old.model_copy(update={"position": chosen.position})
    cheapest = _usd(min(plans, key=_usd))
    return old.model_copy(
        update={
            "id": first.id,
            "position": first.position,
            "reason": CAN_START if first.startable == "yes" else MAY_START,
            "gap_to_cheapest": _usd(first) / cheapest - 1 if cheapest else 0.0,
        }
    )


def _usd(plan: Plan) -> float:
    usd = None if plan.whole_job is None else plan.likely_usd
    return float("inf") if usd is None else usd
