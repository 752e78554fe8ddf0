"""Gathered cells to ours: units exactly, names as said, nothing else changed."""

from decimal import Decimal

import pytest
from gathered_tables import accelerator, grid, instance, offer, place, provider
from hypothesis import given
from hypothesis import strategies as st

from gpuplan.catalog.csv_rows import (
    ACCELERATOR_COLUMNS,
    INSTANCE_COLUMNS,
    OFFER_COLUMNS,
    PROVIDER_COLUMNS,
    REGION_COLUMNS,
)
from gpuplan.catalog.gathered import convert
from gpuplan.catalog.gathered.convert import Cells


def test_every_conversion_has_exactly_the_columns_of_its_table() -> None:
    sold = [convert.offer(offer())]
    assert convert.accelerator(accelerator()).keys() == set(ACCELERATOR_COLUMNS)
    assert convert.instance(instance()).keys() == set(INSTANCE_COLUMNS)
    assert sold[0].keys() == set(OFFER_COLUMNS)
    assert convert.provider(provider()).keys() == set(PROVIDER_COLUMNS)
    (region,) = convert.regions(sold, [], [])
    assert region.keys() == set(REGION_COLUMNS)


def test_an_accelerator_is_in_si_units() -> None:
    row = convert.accelerator(accelerator())
    assert row["memory_bytes"] == str(80 * 2**30)
    assert row["memory_visible_bytes"] == str(81_920 * 2**20)
    assert row["memory_bandwidth_bytes_per_s"] == "2039000000000"
    assert row["fp32_flops"] == "19500000000000"
    assert (row["fp8_flops"], row["fp4_flops"]) == ("", "")
    assert (row["boost_hz"], row["compute_units"]) == ("1410000000", "108")
    assert row["link_bytes_per_s"] == "300000000000"


@given(st.decimals("0.0001", "99999", places=4))
def test_figures_are_scaled_exactly_and_written_plainly(figure: Decimal) -> None:
    cell = convert.accelerator(accelerator(mem_bw_gbs=str(figure)))["memory_bandwidth_bytes_per_s"]
    assert Decimal(cell) == figure * 10**9
    assert "E" not in cell.upper() and not cell.endswith(".")


def test_links_of_an_instance() -> None:
    row = convert.instance(instance())
    assert (row["intra_link"], row["intra_link_bytes_per_s"]) == ("NVLink3", "300000000000")
    assert (row["intra_link_switched"], row["link_domain_accelerators"]) == ("yes", "")
    assert (row["inter_link"], row["inter_link_bytes_per_s"]) == ("EFA", "50000000000")
    assert row["inter_link_rdma"] == "yes"


@pytest.mark.parametrize(("nvswitch", "switched"), [("partial (4 of 8)", "yes"), ("no", "no")])
def test_a_part_of_a_host_is_still_behind_its_switch(nvswitch: str, switched: str) -> None:
    assert convert.instance(instance(nvswitch=nvswitch))["intra_link_switched"] == switched


def test_a_rack_is_one_domain() -> None:
    assert convert.instance(instance(nvswitch="yes (NVL72)"))["link_domain_accelerators"] == "72"


@pytest.mark.parametrize(("count", "domain"), [("4", "256"), ("8", "")])
def test_hosts_of_four_chips_are_of_a_slice(count: str, domain: str) -> None:
    row = instance(accelerator="TPU-v6e", accelerators_per_instance=count, nvswitch="no")
    assert convert.instance(row)["link_domain_accelerators"] == domain


@pytest.mark.parametrize("link", ["", "none"])
def test_a_link_that_is_not_there_has_no_name_and_no_figure(link: str) -> None:
    row = convert.instance(instance(intra_link=link))
    cells = ("intra_link", "intra_link_bytes_per_s", "intra_link_switched")
    assert [row[name] for name in cells] == ["", "", ""]


def test_no_infiniband_is_tcp_and_said_in_the_note() -> None:
    row = convert.instance(instance(inter_node_fabric="none (no IB)", note="small"))
    assert (row["inter_link"], row["note"]) == ("TCP", "small; no InfiniBand")


@pytest.mark.parametrize(("information", "market"), [("market", "yes"), ("list price", "no")])
def test_a_spot_price_is_the_market_s_or_not(information: str, market: str) -> None:
    assert convert.offer(offer(spot_information=information))["spot_is_market"] == market


@pytest.mark.parametrize(
    ("changes", "column", "cell"),
    [
        ({"marketplace": "partly"}, "marketplace", "no"),
        ({"hipaa_eligible": "no"}, "hipaa_eligible", "no"),
        ({"hipaa_eligible": "on request"}, "hipaa_eligible", ""),
        ({"home_jurisdiction": "US"}, "home_jurisdiction", "us"),
        ({"home_jurisdiction": "several"}, "home_jurisdiction", ""),
    ],
)
def test_what_is_not_clear_of_a_provider_stays_unknown(
    changes: Cells, column: str, cell: str
) -> None:
    assert convert.provider(provider(**changes))[column] == cell


def test_a_region_is_listed_where_it_is_sold_or_its_grid_and_place_are_known() -> None:
    rows = convert.regions(
        [convert.offer(offer(region="here"))],
        [grid(region="grid-only"), grid(region="both"), grid(provider="elsewhere", region="here")],
        [place(region="both"), place(region="place-only")],
    )
    assert [row["name"] for row in rows] == ["both", "here"]
    both, here = rows
    assert (both["jurisdiction"], both["grid_kg_co2e_per_kwh"]) == ("us", "0.4")
    assert both["source"] == "list; grid 2024: map"
    assert (here["jurisdiction"], here["grid_kg_co2e_per_kwh"], here["source"]) == ("", "", "")


def test_a_region_s_known_misspelling_is_mended() -> None:
    rows = convert.regions(
        [convert.offer(offer(provider="gcp", region="me-central1"))],
        [grid(provider="gcp", region="me-cenrtal1")],
        [],
    )
    assert [(row["name"], row["grid_kg_co2e_per_kwh"]) for row in rows] == [("me-central1", "0.4")]


def test_spot_interruptions_are_fractions() -> None:
    row = convert.spot_interruption(
        {
            "region": "us-east-1",
            "instance_type": "p4d.24xlarge",
            "source": "advisor",
            "monthly_interruption_min_percent": "5",
            "monthly_interruption_max_percent": "10",
            "saving_over_on_demand_percent": "61.5",
        }
    )
    cells = ("provider", "monthly_interruption_low", "monthly_interruption_high", "spot_saving")
    assert [row[name] for name in cells] == ["aws", "0.05", "0.1", "0.615"]


@pytest.mark.parametrize(
    ("canonical", "note", "certainty"),
    [
        ("", "a board of several", "none"),
        ("A100-40GB-SXM", "ambiguous: 40 or 80 GB", "ambiguous"),
        ("A100-40GB-SXM", "memory size not stated", "ambiguous"),
        ("A100-40GB-SXM", "SXM assumed", "assumed"),
        ("A100-40GB-SXM", "", "exact"),
    ],
)
def test_how_certain_an_alias_is(canonical: str, note: str, certainty: str) -> None:
    row = convert.alias({"alias": "A100", "canonical": canonical, "note": note})
    assert row["certainty"] == certainty
