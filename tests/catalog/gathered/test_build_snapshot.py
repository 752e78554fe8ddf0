"""A snapshot is built whole or not at all: same tables in, same bytes out, every fault named."""

import json
from pathlib import Path

import pytest
from gathered_tables import (
    accelerator,
    alias,
    commitment,
    instance,
    offer,
    spot_interruption,
    storage,
    write_tables,
)

from gpuplan.catalog.embedded import read_catalogue
from gpuplan.catalog.gathered.build_snapshot import SnapshotError, build_snapshot, main


def written(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_what_is_gathered_is_what_is_read_back(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert build_snapshot(write_tables(tmp_path / "in"), out) == []
    catalogue = read_catalogue(out, validate=True)
    (one,) = catalogue.offers
    assert (one.provider, one.instance_type, str(one.on_demand_usd_per_hour)) == (
        "aws",
        "p4de.24xlarge",
        "40.96",
    )
    machine = catalogue.instance_of(one)
    assert machine is not None and machine.accelerators == 8
    facts = json.loads((out / "snapshot.json").read_text())
    assert facts["date"] == "2026-08-01"
    assert facts["prices"]["priced_offers"] == 1
    assert facts["rows"]["offers.csv"] == facts["rows"]["aliases.csv"] == 1


def test_same_tables_make_same_bytes_whatever_their_order(tmp_path: Path) -> None:
    offers = [offer(region=region) for region in ("us-west-2", "us-east-1", "eu-west-1")]
    first = write_tables(tmp_path / "first", offers=offers)
    second = write_tables(tmp_path / "second", offers=offers[::-1])
    build_snapshot(first, tmp_path / "one")
    build_snapshot(second, tmp_path / "other")
    assert written(tmp_path / "one") == written(tmp_path / "other")


@pytest.mark.parametrize(
    ("tables", "fault"),
    [
        ({"offers": [offer(), offer()]}, "aws / us-east-1 / p4de.24xlarge is there twice"),
        ({"offers": [offer(on_demand_usd_per_hour="0")]}, "the price 0 is not above zero"),
        ({"offers": [offer(spot_usd_per_hour="41")]}, "spot 41 is above on-demand 40.96"),
        ({"offers": [offer(spot_usd_per_hour="")]}, "a market spot price without a price"),
        ({"offers": [offer(provider="nobody")]}, "unknown provider"),
        ({"offers": [offer(accelerator_count="4")]}, "other in its topology row"),
        ({"offers": [offer(accelerator="Z9000")]}, "Z9000: no spec row and no alias"),
        ({"instances": []}, "no topology row"),
        (
            {
                "instances": [instance(accelerators_per_instance="0")],
                "offers": [offer(accelerator_count="0")],
            },
            "0.0 accelerators",
        ),
        ({"accelerators": [accelerator(mem_bw_gbs="0")]}, "a figure is not positive"),
        ({"accelerators": [accelerator(), accelerator()]}, "a100-80gb-sxm is there twice"),
        ({"aliases": [alias(alias="a100"), alias(alias="A100")]}, "a100 is there twice"),
        ({"commitments": [commitment()] * 2}, "commitments.csv: aws"),
        ({"aws_spot_interruption": [spot_interruption()] * 2}, "spot_interruption.csv: aws"),
    ],
)
def test_a_broken_table_is_refused_and_nothing_changes(
    tmp_path: Path, tables: dict[str, list[dict[str, str]]], fault: str
) -> None:
    out = tmp_path / "out"
    build_snapshot(write_tables(tmp_path / "good"), out)
    before = written(out)
    with pytest.raises(SnapshotError) as refused:
        build_snapshot(write_tables(tmp_path / "bad", **tables), out)
    assert fault in str(refused.value)
    assert written(out) == before


def test_every_fault_is_named_at_once(tmp_path: Path) -> None:
    offers = [
        offer(on_demand_usd_per_hour="0", spot_usd_per_hour="0"),
        offer(region="eu-west-1", provider="nobody"),
    ]
    with pytest.raises(SnapshotError) as refused:
        build_snapshot(write_tables(tmp_path / "in", offers=offers), tmp_path / "out")
    assert "us-east-1" in str(refused.value) and "unknown provider" in str(refused.value)


def test_a_price_far_from_its_siblings_is_a_warning_and_stays(tmp_path: Path) -> None:
    prices = {"us-east-1": "40", "us-west-2": "41", "eu-west-1": "61.5"}
    offers = [offer(region=region, on_demand_usd_per_hour=usd) for region, usd in prices.items()]
    warnings = build_snapshot(write_tables(tmp_path / "in", offers=offers), tmp_path / "out")
    assert warnings == ["aws/eu-west-1/p4de.24xlarge: 61.5 is 1.50 × the median of its type"]
    assert len(read_catalogue(tmp_path / "out").offers) == 3


def test_only_permissive_licences_where_that_is_asked(tmp_path: Path) -> None:
    offers = [offer(), offer(region="eu-west-1", licence="terms of use")]
    source = write_tables(tmp_path / "in", offers=offers, storage_egress=[storage()])
    build_snapshot(source, tmp_path / "all")
    build_snapshot(source, tmp_path / "some", permissive_only=True)
    assert len(read_catalogue(tmp_path / "all").offers) == 2
    assert [one.region for one in read_catalogue(tmp_path / "some").offers] == ["us-east-1"]


def test_machines_that_nobody_sells_are_left_out(tmp_path: Path) -> None:
    machines = [instance(), instance(instance_type="p5.48xlarge")]
    build_snapshot(write_tables(tmp_path / "in", instances=machines), tmp_path / "out")
    sold = [key for key in read_catalogue(tmp_path / "out").instances if key[1].startswith("p")]
    assert ("aws", "p4de.24xlarge") in sold and ("aws", "p5.48xlarge") not in sold


def test_the_command_says_what_became_of_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = write_tables(tmp_path / "good")
    bad = write_tables(tmp_path / "bad", offers=[offer(), offer()])
    assert main(["--source", str(good), "--out", str(tmp_path / "out")]) == 0
    assert json.loads(capsys.readouterr().out)["schema_version"] == 1
    assert main(["--source", str(bad), "--out", str(tmp_path / "out")]) == 1
    assert "Nothing was written." in capsys.readouterr().err
    assert main(["--source", str(tmp_path / "no"), "--out", str(tmp_path / "out")]) == 1
