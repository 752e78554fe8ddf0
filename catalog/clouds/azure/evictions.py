"""Azure's eviction rates of spot machines, through Resource Graph. Read-only.

A rate is a chance per hour, in bands: "an eviction rate of 10 % means a VM has a 10 % chance of
being evicted within the next hour" (https://learn.microsoft.com/azure/virtual-machines/spot-vms,
2026-11-25). It is none of AWS's shares per month.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from typing import Any

from ...types import EvictionRow
from ..asking import Patience, asked_again
from ..interface import CloudError, Refused
from .client import library, limits, meaning
from .rows import PROVIDER

BANDS = {
    "0-5": (0.0, 0.05),
    "5-10": (0.05, 0.1),
    "10-15": (0.1, 0.15),
    "15-20": (0.15, 0.2),
    "20+": (0.2, 1.0),
}
"""As Resource Graph spells them → the ends of the chance per hour; the last has no end."""
PERMISSION = "Microsoft.ResourceGraph/resources/read"
SOURCE = "Azure Resource Graph, spotresources (skuspotevictionrate)"
BAND_RULE = "azure-eviction-band"
PAGE_ROWS = 1000
"""The most that a page may hold."""
MOST_PAGES = 100


def evictions_query(instance_types: Iterable[str]) -> str:
    """Return the query for some sizes in all regions; names are in lower case in that table.

    https://learn.microsoft.com/azure/virtual-machines/spot-vms#azure-resource-graph (2026-11-25).
    """
    names = ", ".join(f"'{name.lower()}'" for name in sorted(instance_types))
    return (
        "spotresources"
        " | where type =~ 'microsoft.compute/skuspotevictionrate/location'"
        f" | where tolower(tostring(sku.name)) in ({names})"
        " | project skuName = tostring(sku.name), location,"
        " evictionRate = tostring(properties.evictionRate)"
        " | order by skuName asc, location asc"
    )


def eviction_records(client: Any, query: str, patience: Patience) -> Iterator[Mapping[str, Any]]:
    """Yield every row that a query of Resource Graph answers, of the whole tenant.

    The table is empty for a query of single subscriptions.

    Args:
        client: A `ResourceGraphClient`.
        query: What is asked.
        patience: Time-outs and tries.

    Raises:
        CloudError: Azure refused, or did not answer.
    """
    models = library("azure.mgmt.resourcegraph.models")
    token: str | None = None
    for _ in range(MOST_PAGES):
        options = models.QueryRequestOptions(
            skip_token=token, top=PAGE_ROWS, result_format="objectArray"
        )
        request = models.QueryRequest(query=query, options=options)

        def ask(request: Any = request) -> Any:
            with meaning(PERMISSION):
                page = client.resources(request, **limits(patience))
            if not isinstance(page.data, list) or page.count != len(page.data):
                raise CloudError("the answer is cut off or damaged", temporary=True)
            return page

        page = asked_again(ask, patience)
        yield from page.data
        if not page.skip_token:
            return
        if page.skip_token == token:
            break
        token = page.skip_token
    raise CloudError("the answer repeats the same page")


def read_evictions(
    records: Iterable[Mapping[str, Any]], instance_types: Iterable[str], *, today: date
) -> Iterator[EvictionRow | Refused]:
    """Yield the rate of each row, or why it is not taken.

    Args:
        records: Rows of the query's answer.
        instance_types: As the catalogue spells them.
        today: When they were read.
    """
    spelled = {name.lower(): name for name in instance_types}
    for record in records:
        yield _row_of(record, spelled, today)


def _row_of(
    record: Mapping[str, Any], spelled: Mapping[str, str], today: date
) -> EvictionRow | Refused:
    name, band = str(record.get("skuName") or "?"), str(record.get("evictionRate"))
    region = str(record.get("location") or "").lower().replace(" ", "")
    instance_type = spelled.get(name.lower())

    def refused(rule: str, why: str) -> Refused:
        return Refused(rule=rule, provider=PROVIDER, region=region or None, what=name, why=why)

    if not region or instance_type is None:
        return refused("no-place", "no location, or a size that was not asked for")
    if band not in BANDS:
        return refused(BAND_RULE, f"the eviction rate is {record.get('evictionRate')!r}")
    low, high = BANDS[band]
    return EvictionRow(
        provider=PROVIDER,
        region=region,
        instance_type=instance_type,
        hourly_low=low,
        hourly_high=high,
        asked_on=today,
        source=SOURCE,
    )
