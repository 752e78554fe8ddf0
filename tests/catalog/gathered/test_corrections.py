"""Corrections of the gathered tables: what they say stands in the package."""

import csv
from fnmatch import fnmatchcase
from pathlib import Path

from gpuplan.catalog.embedded import CURATED_DIR, DATA_DIR, embedded_catalogue
from gpuplan.catalog.gathered.corrections import FILE, Corrections

CATALOGUE = embedded_catalogue()


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_every_correction_stands_in_the_package() -> None:
    tables = {name: rows(DATA_DIR / f"{name}.csv") for name in ("offers", "instances")}
    for one in rows(CURATED_DIR / FILE):
        found = [
            row
            for row in tables[one["table"]]
            if row["provider"] == one["provider"]
            and fnmatchcase(row["instance_type"], one["instance_type"])
        ]
        assert found, one
        for row in found:
            if one["column"] == "note+":
                assert one["value"] in row["note"]
            else:
                assert row[one["column"]] == one["value"]
        assert one["source"]


def test_a_cell_is_replaced_and_a_note_added_to(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(
        "table,provider,instance_type,column,value,source\n"
        "offers,here,big-*,accelerators,8,somewhere\n"
        "offers,here,big-*,note+,a node of eight,somewhere\n"
    )
    big = {"provider": "here", "instance_type": "big-1", "accelerators": "1", "note": "old"}
    small = {**big, "instance_type": "small"}
    elsewhere = {**big, "provider": "there"}
    given = [big, small, elsewhere]
    first, *others = Corrections(tmp_path).corrected("offers", given)
    assert first == {**big, "accelerators": "8", "note": "old; a node of eight"}
    assert others == [small, elsewhere]
    assert Corrections(tmp_path).corrected("instances", given) == given


def test_a_price_per_accelerator_of_a_node_is_that_of_the_node() -> None:
    (node,) = (
        one for one in CATALOGUE.offers if one.instance_type == "vultr-l40s-bare-metal-on-demand"
    )
    assert node.accelerators == 8
    assert float(node.on_demand_usd_per_hour or 0) == 8 * 0.848


def test_no_seller_asks_more_for_spot_than_on_demand() -> None:
    """A price of spot machines above that of the same accelerator without it is none of spot."""
    lowest: dict[tuple[str, str], float] = {}
    for one in CATALOGUE.offers:
        usd = one.usd_per_accelerator_hour("on-demand")
        if usd is not None:
            key = one.provider, one.accelerator
            lowest[key] = min(lowest.get(key, float(usd)), float(usd))
    for one in CATALOGUE.offers:
        usd = one.usd_per_accelerator_hour("spot")
        if usd is None or one.price_basis != "spot_only" or one.provider in OTHER_PRODUCTS:
            continue
        key = one.provider, one.accelerator
        assert float(usd) <= lowest.get(key, float(usd)), one.instance_type


OTHER_PRODUCTS = ("dataoorts",)
"""Its products of one accelerator differ: X-Series, Nova, Yotta."""
