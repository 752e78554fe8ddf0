"""What Google Cloud has and lets a project use: zones, scores, quotas, reservations. Read-only."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import Any

from ...types import Instance
from ..asking import unanswered_by, undocumented_quotas
from ..interface import (
    Asked,
    Availability,
    CalendarWindow,
    CloudError,
    Quota,
    Quotas,
    Reservation,
    Reservations,
    Score,
    SpotHistory,
    Tell,
    Unanswered,
    Zones,
)
from .advice import COMPUTE, GcpAdvice
from .client import GcpClients
from .quota import QUOTA_ID_OF_FAMILIES, QUOTAS, QuotaName, limit_of, quota_of, used_gpus
from .tpu_quotas import SERVICE, tpu_quotas
from .tpus import tpu_places

RUNNING = frozenset(("PROVISIONING", "STAGING", "RUNNING"))


class GcpCapacity:
    """The questions about capacity, of one project.

    Args:
        gcp: Its clients.
    """

    def __init__(self, gcp: GcpClients) -> None:
        self._gcp = gcp
        self._advice = GcpAdvice(gcp)

    def availability(self, asked: Asked, tell: Tell) -> Availability:
        """Return the zones that offer each machine type, and what Google advises of them."""
        try:
            zones = self.machine_zones(asked.instances.values(), tell)
        except CloudError as error:
            return Availability(unanswered=(unanswered_by(error, "zones"),))
        zones, unanswered = tpu_places(self._gcp, asked, zones, tell)
        scores: list[Score] = []
        histories: list[SpotHistory] = []
        windows: list[CalendarWindow] = []
        if asked.purchase == "spot":
            scores, silent = self._advice.scores(asked, zones, tell)
            unanswered += silent
            histories, silent = self._advice.histories(asked, zones, tell)
            unanswered += silent
        if asked.block_hours is not None:
            windows, silent = self._advice.windows(asked, zones, tell)
            unanswered += silent
        by_place: dict[tuple[str, str], set[str]] = {
            (region, name): set() for region in asked.regions for name in asked.instances
        }
        for name, zone in zones:
            place = (zone.rsplit("-", 1)[0], name)
            if place in by_place:
                by_place[place].add(zone)
        return Availability(
            zones=tuple(
                Zones(region=region, instance_type=name, zones=tuple(sorted(found)))
                for (region, name), found in by_place.items()
            ),
            scores=tuple(scores),
            histories=tuple(histories),
            windows=tuple(windows),
            unanswered=tuple(unanswered),
        )

    def machine_zones(self, instances: Iterable[Instance], tell: Tell) -> set[tuple[str, str]]:
        """Return (machine type, zone) of those that are asked for."""
        tell("machine types of Google Cloud", None, None)
        names = {one.instance_type for one in instances}
        prefixes = "|".join(sorted({name.split("-")[0] for name in names}))
        answer = self._gcp.all_of(
            COMPUTE,
            "MachineTypesClient",
            "aggregated_list",
            "compute.machineTypes.list",
            {
                "project": self._gcp.project,
                "filter": f'name eq "({prefixes})-.*"',
            },
        )
        return {
            (machine.name, scope.removeprefix("zones/"))
            for scope, listed in answer
            for machine in listed.machine_types
            if machine.name in names
        }

    def quota(self, asked: Asked, tell: Tell) -> Quotas:
        """Return the quotas that count each machine type, and what of them is used."""
        tell("quotas of Google Cloud", None, None)
        quotas, unanswered, tpus = tpu_quotas(self._gcp, asked, tell)
        names = {
            name: quota_of(name, asked.purchase) for name in asked.instances if name not in tpus
        }
        unanswered += undocumented_quotas(names, asked.purchase)
        for kind, read in (("metric", self._metrics), ("family", self._families)):
            wanted = {name: one for name, one in names.items() if one and one.kind == kind}
            if not wanted:
                continue
            try:
                found, more = read(wanted, asked)
            except CloudError as error:
                unanswered += [unanswered_by(error, "quota", region) for region in asked.regions]
                continue
            quotas += found
            unanswered += more
        return Quotas(quotas=tuple(quotas), unanswered=tuple(unanswered))

    def _metrics(
        self, wanted: dict[str, QuotaName], asked: Asked
    ) -> tuple[list[Quota], list[Unanswered]]:
        """Return the quotas of older accelerators, which each region lists with their use."""
        regions = self._gcp.all_of(
            COMPUTE,
            "RegionsClient",
            "list",
            "compute.regions.list",
            {"project": self._gcp.project},
        )
        listed = {one.name: {quota.metric: quota for quota in one.quotas} for one in regions}
        found, unanswered = [], []
        for region in asked.regions:
            for name, quota in wanted.items():
                row = listed.get(region, {}).get(quota.name)
                if row is None:
                    why = f"no quota {quota.name} is listed"
                    unanswered.append(
                        Unanswered(question="quota", region=region, instance_type=name, why=why)
                    )
                    continue
                found.append(_quota(region, name, quota, row.limit, row.usage, asked))
        if asked.purchase == "on-demand":
            found += self._global(wanted, asked)
        return found, unanswered

    def _global(self, wanted: dict[str, QuotaName], asked: Asked) -> list[Quota]:
        """Return the quota of accelerators of all kinds and regions together."""
        project = self._gcp.one(
            COMPUTE,
            "ProjectsClient",
            "get",
            "compute.projects.get",
            {"project": self._gcp.project},
        )
        every = QuotaName("metric", "GPUS_ALL_REGIONS")
        return [
            _quota("global", name, every, row.limit, row.usage, asked)
            for row in project.quotas
            if row.metric == every.name
            for name in wanted
        ]

    def _families(
        self, wanted: dict[str, QuotaName], asked: Asked
    ) -> tuple[list[Quota], list[Unanswered]]:
        """Return the quotas of newer accelerators, and their use by the machines that run."""
        info = self._gcp.one(
            QUOTAS,
            "CloudQuotasClient",
            "get_quota_info",
            "cloudquotas.quotas.get",
            {
                "name": f"projects/{self._gcp.project}/locations/global/services/"
                f"compute.googleapis.com/quotaInfos/{QUOTA_ID_OF_FAMILIES}"
            },
        )
        running: list[Any] | None = None
        unanswered: list[Unanswered] = []
        try:
            running = self._running()
        except CloudError as error:
            unanswered.append(unanswered_by(error, "use"))
        found = []
        for region in asked.regions:
            for name, quota in wanted.items():
                limit = limit_of(info, {"region": region, "gpu_family": quota.name})
                if limit is None:
                    why = f"no limit of {quota.name} is stated"
                    unanswered.append(
                        Unanswered(question="quota", region=region, instance_type=name, why=why)
                    )
                    continue
                used = None
                if running is not None:
                    used = used_gpus(running, quota, region, asked.purchase)
                found.append(_quota(region, name, quota, limit, used, asked))
        return found, unanswered

    def _running(self) -> list[tuple[str, str, bool, int]]:
        """Return (zone, machine type, is spot, accelerators) of the machines that run."""
        answer = self._gcp.all_of(
            COMPUTE,
            "InstancesClient",
            "aggregated_list",
            "compute.instances.list",
            {"project": self._gcp.project},
        )
        return [
            (
                scope.removeprefix("zones/"),
                one.machine_type.rpartition("/")[2],
                one.scheduling.preemptible or one.scheduling.provisioning_model == "SPOT",
                sum(each.accelerator_count for each in one.guest_accelerators),
            )
            for scope, listed in answer
            for one in listed.instances
            if one.status in RUNNING
        ]

    def reservations(self, asked: Asked, tell: Tell) -> Reservations:
        """Return the reservations of the project that hold these machine types."""
        tell("reservations of Google Cloud", None, None)
        try:
            answer = self._gcp.all_of(
                COMPUTE,
                "ReservationsClient",
                "aggregated_list",
                "compute.reservations.list",
                {"project": self._gcp.project},
            )
        except CloudError as error:
            return Reservations(unanswered=(unanswered_by(error, "held"),))
        held = []
        for scope, listed in answer:
            for one in listed.reservations:
                machines = one.specific_reservation
                zone = scope.removeprefix("zones/")
                name = machines.instance_properties.machine_type
                region = zone.rsplit("-", 1)[0]
                if name not in asked.instances or region not in asked.regions:
                    continue
                held.append(
                    Reservation(
                        region=region,
                        zone=zone,
                        id=one.name,
                        instance_type=name,
                        kind="reservation",
                        instances=machines.count,
                        free=machines.count - machines.in_use_count,
                        starts=None,
                        ends=None,
                    )
                )
        return Reservations(held=tuple(held))

    def quota_command(self, quota: Quota, wanted: float) -> str:
        """Return the command that asks Google for a higher quota."""
        place = f"region={quota.region}" if quota.zone is None else f"zone={quota.zone}"
        dimensions = [] if quota.region == "global" else [place]
        if quota.code == QUOTA_ID_OF_FAMILIES:
            dimensions.append(f"gpu_family={quota.name}")
        command = ["gcloud", "beta", "quotas", "preferences", "create"]
        service = SERVICE if quota.unit.startswith("TPU") else "compute.googleapis.com"
        command += [f"--service={service}", f"--project={self._gcp.project}"]
        command += [f"--quota-id={quota.code}", f"--preferred-value={wanted:g}"]
        if dimensions:
            command.append(f"--dimensions={','.join(dimensions)}")
        return shlex.join(command)


def _quota(
    region: str, name: str, quota: QuotaName, limit: float, used: float | None, asked: Asked
) -> Quota:
    return Quota(
        region=region,
        instance_type=name,
        purchase=asked.purchase,
        name=quota.name,
        code=quota.id,
        unit="GPU",
        limit=limit,
        used=used,
        per_instance=asked.instances[name].accelerators,
    )
