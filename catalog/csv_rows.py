"""One CSV row of the embedded snapshot ↔ one typed row of the catalogue.

The column names are the field names of `types.py` (links are flattened, peaks get one column per
dtype), so the tables can be read without this file. Text that is empty means unknown: `None`.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from datetime import date
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel

from .types import Accelerator, Dtype, Instance, Link, Offer, Provider, Region

Row = TypeVar("Row", bound=BaseModel)
Values = dict[str, Any]

DTYPES: tuple[Dtype, ...] = get_args(Dtype)


def columns_of(text: str) -> list[str]:
    """Return the names of a table's columns, which are written as its first line."""
    return text.split(",")


ACCELERATOR_COLUMNS = columns_of(
    "name,vendor,arch,form_factor,memory_bytes,memory_visible_bytes,memory_visible_source,"
    "memory_type,memory_bandwidth_bytes_per_s,"
    + ",".join(f"{dtype}_flops" for dtype in DTYPES)
    + ",compute_units,boost_hz,l2_bytes,link,link_bytes_per_s,tdp_w,compute_capability,"
    "launch_year,confidence,licence,source,note"
)
INSTANCE_COLUMNS = columns_of(
    "provider,instance_type,accelerator,accelerators,vcpus,memory_bytes,intra_link,"
    "intra_link_bytes_per_s,intra_link_switched,link_domain_accelerators,inter_link,"
    "inter_link_bytes_per_s,inter_link_rdma,local_nvme_bytes,cluster_placement,usage_classes,"
    "basis,confidence,licence,source,note"
)
OFFER_COLUMNS = columns_of(
    "provider,region,instance_type,accelerator,accelerators,on_demand_usd_per_hour,"
    "spot_usd_per_hour,spot_is_market,price_basis,price_date,price_date_precision,marketplace,"
    "skypilot_cloud,licence,source,note"
)
PROVIDER_COLUMNS = columns_of(
    "name,skypilot_cloud,marketplace,billing_increment_s,minimum_s,pue,hipaa_eligible,"
    "home_jurisdiction,source"
)
REGION_COLUMNS = columns_of("provider,name,jurisdiction,grid_kg_co2e_per_kwh,source")


def _text(cell: str) -> str | None:
    return cell or None


def _integer(cell: str) -> int | None:
    return int(cell) if cell else None


def _number(cell: str) -> float | None:
    return float(cell) if cell else None


def _boolean(cell: str) -> bool | None:
    return None if not cell else cell == "yes"


def _money(cell: str) -> Decimal | None:
    return Decimal(cell) if cell else None


@lru_cache(maxsize=1024)
def _date(cell: str) -> date | None:
    # A snapshot has some ten distinct dates over thousands of rows.
    return date.fromisoformat(cell) if cell else None


_PARSERS: dict[str, Callable[[str], object]] = {
    "memory_bytes": _integer,
    "memory_visible_bytes": _integer,
    "memory_bandwidth_bytes_per_s": _number,
    "compute_units": _integer,
    "boost_hz": _number,
    "l2_bytes": _integer,
    "link_bytes_per_s": _number,
    "tdp_w": _number,
    "launch_year": _integer,
    "accelerators": _number,
    "vcpus": _number,
    "intra_link_bytes_per_s": _number,
    "intra_link_switched": _boolean,
    "link_domain_accelerators": _integer,
    "inter_link_bytes_per_s": _number,
    "inter_link_rdma": _boolean,
    "local_nvme_bytes": _integer,
    "on_demand_usd_per_hour": _money,
    "spot_usd_per_hour": _money,
    "spot_is_market": _boolean,
    "price_date": _date,
    "marketplace": _boolean,
    "billing_increment_s": _integer,
    "minimum_s": _integer,
    "pue": _number,
    "hipaa_eligible": _boolean,
    "grid_kg_co2e_per_kwh": _number,
    "monthly_interruption_low": _number,
    "monthly_interruption_high": _number,
    "spot_saving": _number,
    "term_years": _integer,
    "usd_per_hour": _money,
    "usd": _money,
    **{f"{dtype}_flops": _number for dtype in DTYPES},
}


def read_rows(path: Path, columns: list[str]) -> Iterator[Values]:
    """Yield the rows of one table with every cell parsed; refuse a table with other columns."""
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.reader(file)
        header = next(reader, [])
        if header != columns:
            raise ValueError(f"{path.name}: columns are {header}, expected {columns}")
        parsers = [_PARSERS.get(column, _text) for column in columns]
        for cells in reader:
            yield {
                column: parse(cell)
                for column, parse, cell in zip(columns, parsers, cells, strict=True)
            }


def read_accelerators(path: Path, *, validate: bool = False) -> list[Accelerator]:
    """Return the accelerators of one table."""
    return [
        build_row(Accelerator, _with_peaks(values), validate)
        for values in read_rows(path, ACCELERATOR_COLUMNS)
    ]


def read_instances(path: Path, *, validate: bool = False) -> list[Instance]:
    """Return the instances of one table."""
    return [
        build_row(Instance, _with_links(values, validate), validate)
        for values in read_rows(path, INSTANCE_COLUMNS)
    ]


def read_offers(path: Path, *, validate: bool = False) -> list[Offer]:
    """Return the offers of one table."""
    return [build_row(Offer, values, validate) for values in read_rows(path, OFFER_COLUMNS)]


def read_providers(path: Path, *, validate: bool = False) -> list[Provider]:
    """Return the providers of one table."""
    return [build_row(Provider, values, validate) for values in read_rows(path, PROVIDER_COLUMNS)]


def read_regions(path: Path, *, validate: bool = False) -> list[Region]:
    """Return the regions of one table."""
    return [build_row(Region, values, validate) for values in read_rows(path, REGION_COLUMNS)]


def build_row(model: type[Row], values: Values, validate: bool) -> Row:
    """Return one row of the catalogue, checked field by field only on request."""
    # The snapshot was validated row by row when it was built (`build_snapshot.py`) and a test
    # repeats that; re-validating 4,000 rows at every start would cost most of the start-up time.
    return model.model_validate(values) if validate else model.model_construct(**values)


def _with_peaks(values: Values) -> Values:
    peaks = {dtype: values.pop(f"{dtype}_flops") for dtype in DTYPES}
    values["peak_flops"] = {dtype: peak for dtype, peak in peaks.items() if peak is not None}
    return values


def _with_links(values: Values, validate: bool) -> Values:
    intra: Values = {
        "name": values["intra_link"],
        "bytes_per_s": values.pop("intra_link_bytes_per_s"),
        "switched": values.pop("intra_link_switched"),
    }
    inter: Values = {
        "name": values["inter_link"],
        "bytes_per_s": values.pop("inter_link_bytes_per_s"),
        "rdma": values.pop("inter_link_rdma"),
    }
    values["intra_link"] = build_row(Link, intra, validate)
    values["inter_link"] = build_row(Link, inter, validate)
    classes = values["usage_classes"]
    values["usage_classes"] = tuple(classes.split("|")) if classes else ()
    return values
