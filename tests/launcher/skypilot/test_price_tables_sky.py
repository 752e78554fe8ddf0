"""gpuplan's prices in SkyPilot's tables: what is written, what stays, what is counted."""

import hashlib
import os
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from answers import make_offer, make_plan

from gpuplan.catalog.errors import GpuplanError, UsageError
from gpuplan.catalog.snapshot import Catalogue, load_catalogue
from gpuplan.cli.main import run
from gpuplan.launcher.skypilot.home import (
    enter,
    environment,
    missing_tables,
    own_home,
    write_prices,
)
from gpuplan.launcher.skypilot.placement import Place
from gpuplan.launcher.skypilot.price_tables import (
    NO_PRICE,
    NO_TABLE,
    NOT_THERE,
    SLICE,
    TWO_PRICES,
    Export,
    Table,
    clouds_of,
    with_our_prices,
)
from gpuplan.launcher.skypilot.prices import price_differences

COLUMNS: tuple[str, ...] = (
    "InstanceType",
    "AcceleratorName",
    "AcceleratorCount",
    "vCPUs",
    "MemoryGiB",
    "Price",
    "SpotPrice",
    "Region",
    "AvailabilityZone",
)
AWS = (
    "p4d.24xlarge,A100,8.0,96.0,1152.0,30.0,12.0,us-east-1,use1-az1",
    "p4d.24xlarge,A100,8.0,96.0,1152.0,30.0,,us-east-1,use1-az2",
    "p4d.24xlarge,A100,8.0,96.0,1152.0,31.0,13.0,mars-north-1,marn1-az1",
    "m6i.large,,,2.0,8.0,0.096,0.04,us-east-1,use1-az1",
)
GCP = (
    "g2-standard-4,,,4.0,16.0,0.1,0.05,us-central1,us-central1-a",
    "g2-standard-8,,,8.0,32.0,0.2,0.1,us-central1,us-central1-a",
    "g2-standard-12,,,12.0,48.0,0.3,0.15,mars-north1,mars-north1-a",
    ",L4,1.0,,,0.5,0.2,us-central1,us-central1-a",
    ",L4,1.0,,,0.5,0.2,mars-north1,mars-north1-a",
    "n1-standard-16,,,16.0,60.0,0.76,0.16,us-central1,us-central1-a",
    ",T4,2.0,,,0.7,0.3,us-central1,us-central1-a",
    "TPU-VM,tpu-v5litepod-16,1.0,,,99.0,50.0,us-west4,us-west4-a",
)
RUNPOD = (
    "1x_L4_SECURE,L4,1.0,8.0,64.0,0.9,0.4,US,US-CA-1",
    "1x_L4_COMMUNITY,L4,1.0,8.0,64.0,0.1,0.1,US,US-CA-1",
)


def table(lines: tuple[str, ...]) -> Table:
    rows = tuple(dict(zip(COLUMNS, line.split(","), strict=True)) for line in lines)
    return Table(columns=COLUMNS, rows=rows)


def priced(export: Export, cloud: str) -> list[tuple[str, str]]:
    return [(row["Price"], row["SpotPrice"]) for row in export.tables[cloud].rows]


def only(catalogue: Catalogue, *wanted: tuple[str, str, str]) -> Catalogue:
    offers = [
        offer
        for offer in catalogue.offers
        if (offer.provider, offer.region, offer.instance_type) in wanted
    ]
    assert len(offers) == len(wanted)
    return replace(catalogue, offers=tuple(offers), cpu_offers=())


def price(catalogue: Catalogue, place: int = 0) -> tuple[str, str]:
    offer = catalogue.offers[place]
    return str(offer.on_demand_usd_per_hour), str(offer.spot_usd_per_hour)


P4D = ("aws", "us-east-1", "p4d.24xlarge")


def test_only_the_prices_we_know_are_written_over() -> None:
    catalogue = only(load_catalogue(), P4D)
    ours, spot = price(catalogue)
    source = table(AWS)
    export = with_our_prices(catalogue, {"aws": source})
    # The second zone sells no spot, whatever it would cost; the third region is not ours to price.
    assert priced(export, "aws") == [(ours, spot), (ours, ""), ("31.0", "13.0"), ("0.096", "0.04")]
    assert export.priced == {"aws": 1} and export.left_out == {}
    for before, after in zip(source.rows, export.tables["aws"].rows, strict=True):
        assert {**before, "Price": 0, "SpotPrice": 0} == {**after, "Price": 0, "SpotPrice": 0}


def test_the_persons_own_price_wins() -> None:
    catalogue = only(load_catalogue(), P4D)
    mine = catalogue.offers[0].model_copy(
        update={
            "on_demand_usd_per_hour": Decimal("10.5"),
            "spot_usd_per_hour": None,
            "price_basis": "user",
        }
    )
    both = replace(catalogue, offers=(*catalogue.offers, mine))
    export = with_our_prices(both, {"aws": table(AWS)})
    assert priced(export, "aws")[0] == ("10.5", price(catalogue)[1])


def test_what_cannot_be_said_is_left_out_and_counted() -> None:
    catalogue = only(load_catalogue(), P4D, ("aws", "eu-west-1", "p4d.24xlarge"))
    first, second = sorted(catalogue.offers, key=lambda offer: offer.region, reverse=True)
    unpriced = {"on_demand_usd_per_hour": None, "spot_usd_per_hour": None}
    offers = (
        first.model_copy(update={"skypilot_cloud": "oci"}),
        first.model_copy(update=unpriced),
        first.model_copy(update={"accelerators": 0.5}),
        first.model_copy(update={"marketplace": True}),
        first.model_copy(update={"skypilot_cloud": None}),
        second.model_copy(update={"on_demand_usd_per_hour": Decimal("35")}),
    )
    export = with_our_prices(replace(catalogue, offers=offers), {"aws": table(AWS)})
    assert export.left_out == {"oci": {NO_TABLE: 1}, "aws": {NO_PRICE: 1, SLICE: 1, NOT_THERE: 1}}
    assert export.priced == {} and export.tables["aws"] == table(AWS)


def test_two_prices_for_one_name_leave_skypilots_own() -> None:
    catalogue = only(load_catalogue(), P4D)
    dearer = catalogue.offers[0].model_copy(update={"on_demand_usd_per_hour": Decimal("40")})
    export = with_our_prices(
        replace(catalogue, offers=(*catalogue.offers, dearer)), {"aws": table(AWS)}
    )
    assert priced(export, "aws")[0] == ("30.0", price(catalogue)[1])
    undecided = [offer.model_copy(update={"spot_usd_per_hour": None}) for offer in (dearer,)]
    export = with_our_prices(
        replace(catalogue, offers=(catalogue.offers[0], *undecided)), {"aws": table(AWS)}
    )
    assert export.left_out == {"aws": {TWO_PRICES: 1}}


def test_googles_gpus_are_folded_into_the_machines_that_come_with_them() -> None:
    catalogue = only(load_catalogue(), ("gcp", "us-central1", "g2-standard-8"))
    export = with_our_prices(catalogue, {"gcp": table(GCP)})
    small, ours, elsewhere, gpus, far, *rest = priced(export, "gcp")
    assert ours == price(catalogue)
    # The smaller machine costs what it did: its host and the GPU.
    assert small == ("0.6", "0.25")
    assert gpus == ("0", "0")
    assert [elsewhere, far, *rest] == [
        (row["Price"], row["SpotPrice"])
        for row in (*table(GCP).rows[2::2][:2], *table(GCP).rows[5:])
    ]


def test_attached_gpus_cost_what_the_host_leaves() -> None:
    catalogue = only(load_catalogue(), ("gcp", "us-central1", "n1-standard-16+2xnvidia-tesla-t4"))
    ours, spot = map(Decimal, price(catalogue))
    export = with_our_prices(catalogue, {"gcp": table(GCP)})
    usd, spot_usd = map(Decimal, priced(export, "gcp")[6])
    assert (usd + Decimal("0.76"), spot_usd + Decimal("0.16")) == (ours, spot)
    free = catalogue.offers[0].model_copy(
        update={"on_demand_usd_per_hour": Decimal("0.5"), "spot_usd_per_hour": None}
    )
    export = with_our_prices(replace(catalogue, offers=(free,)), {"gcp": table(GCP)})
    assert export.left_out == {"gcp": {NOT_THERE: 1}}


def test_a_tpu_slice_of_any_size_is_priced_by_its_chips() -> None:
    catalogue = only(load_catalogue(), ("gcp", "us-west4", "ct5lp-hightpu-4t"))
    ours, _ = map(Decimal, price(catalogue))
    export = with_our_prices(catalogue, {"gcp": table(GCP)})
    assert Decimal(priced(export, "gcp")[-1][0]) == ours * 4


def test_machines_of_other_people_keep_their_price() -> None:
    catalogue = only(load_catalogue(), P4D)
    mine = catalogue.offers[0].model_copy(
        update={
            "provider": "runpod",
            "skypilot_cloud": "runpod",
            "region": "global",
            "instance_type": "runpod-l4-secure",
            "accelerator": "L4",
            "accelerators": 1.0,
            "on_demand_usd_per_hour": Decimal("0.44"),
            "spot_usd_per_hour": None,
        }
    )
    export = with_our_prices(replace(catalogue, offers=(mine,)), {"runpod": table(RUNPOD)})
    assert priced(export, "runpod") == [("0.44", "0.4"), ("0.1", "0.1")]


# --- the files --------------------------------------------------------------------------------


def put(home: Path, lines: tuple[str, ...] = AWS, *, downloaded: bool = False) -> Path:
    path = home / ".sky/catalogs/v8/aws/vms.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([",".join(COLUMNS), *lines, ""]))
    if downloaded:
        checksum = home / ".sky/catalogs/v8/.meta/aws/vms.csv.md5"
        checksum.parent.mkdir(parents=True, exist_ok=True)
        checksum.write_text(hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest())
    return path


def test_the_persons_tables_are_read_and_never_written(tmp_path: Path) -> None:
    person, own = tmp_path / "person", tmp_path / "own"
    before = put(person, downloaded=True).read_bytes()
    catalogue = only(load_catalogue(), P4D)
    export = write_prices(own, catalogue, person=person)
    assert export is not None and export.priced == {"aws": 1}
    written = own / ".sky/catalogs/v8/aws/vms.csv"
    assert price(catalogue)[0] in written.read_text() and "30.0" not in written.read_text()
    assert (person / ".sky/catalogs/v8/aws/vms.csv").read_bytes() == before
    assert not list((own / ".sky/catalogs/v8").rglob("*.md5"))
    assert write_prices(own, catalogue, person=person) is None, "nothing has changed"
    assert missing_tables(own, ("aws", "gcp"), person=person) == ("gcp",)


def test_what_skypilot_downloaded_is_kept_beside_our_prices(tmp_path: Path) -> None:
    own, nobody = tmp_path / "own", tmp_path / "nobody"
    path = put(own, downloaded=True)
    theirs = path.read_bytes()
    catalogue = only(load_catalogue(), P4D)
    assert write_prices(own, catalogue, person=nobody) is not None
    assert path.read_bytes() != theirs and not list(own.rglob("*.md5"))
    # Another price later: SkyPilot's own facts are still there to start from.
    dearer = catalogue.offers[0].model_copy(update={"on_demand_usd_per_hour": Decimal("40")})
    export = write_prices(own, replace(catalogue, offers=(dearer,)), person=nobody)
    assert export is not None
    assert path.read_text().splitlines()[3] == AWS[2], "not ours to price"
    assert ",40," in path.read_text()


def test_the_persons_own_home_is_refused(tmp_path: Path) -> None:
    put(tmp_path)
    with pytest.raises(UsageError, match="your own home"):
        write_prices(tmp_path, load_catalogue(), person=tmp_path)


def test_a_file_that_is_no_table_is_refused(tmp_path: Path) -> None:
    path = put(tmp_path / "person")
    path.write_text("<html>not found</html>\n")
    with pytest.raises(UsageError, match="no table of machines"):
        write_prices(tmp_path / "own", load_catalogue(), person=tmp_path / "person")


def test_two_homes_have_two_servers(tmp_path: Path) -> None:
    one, other = environment(tmp_path / "one"), environment(tmp_path / "other")
    assert one == environment(tmp_path / "one")
    assert one["SKY_RUNTIME_DIR"] == str(tmp_path / "one")
    ports = {found["SKYPILOT_API_SERVER_LOCAL_PORT"] for found in (one, other)}
    assert len(ports) == 2 and "46580" not in ports
    assert one["SKYPILOT_API_SERVER_ENDPOINT"].endswith(one["SKYPILOT_API_SERVER_LOCAL_PORT"])


def test_a_home_of_its_own_is_used_only_where_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in environment(tmp_path):
        monkeypatch.setenv(name, "before")
    assert own_home() is None and enter() is None
    assert os.environ["SKY_RUNTIME_DIR"] == "before"
    monkeypatch.setenv("GPUPLAN_SKY_HOME", str(tmp_path))
    assert enter() == tmp_path
    assert os.environ["SKY_RUNTIME_DIR"] == str(tmp_path)


def test_the_catalogue_reaches_these_clouds() -> None:
    assert {"aws", "gcp", "azure", "lambda", "nebius", "oci", "runpod"} <= {
        *clouds_of(load_catalogue())
    }


# --- the plan's price beside SkyPilot's ---------------------------------------------------------

PLACES = (
    Place(cloud="aws", region="us-east-1", zone=None, usd_per_hour=Decimal("10")),
    Place(cloud="aws", region="us-west-2", zone=None, usd_per_hour=Decimal("10")),
    Place(cloud="aws", region="eu-west-1", zone=None, usd_per_hour=Decimal("10")),
)
TASK = {"num_nodes": 2, "resources": {"instance_type": "p4d.24xlarge"}}


def test_prices_more_than_a_percent_apart_are_said() -> None:
    plan = make_plan(layout="fsdp16", nodes=2, offer=make_offer())
    answers = (Decimal("20.19"), Decimal("24"), None)
    (found,) = price_differences(TASK, plan, PLACES, lambda _task: answers)
    assert found.infra == "aws/us-west-2"
    assert found.dearer_usd_per_hour == 24
    assert str(found) == (
        "aws/us-west-2: the plan says $20.00/h, SkyPilot's own table $24.00/h (+20%)"
    )
    (cheaper,) = price_differences(TASK, plan, PLACES[:1], lambda _task: (Decimal("12"),))
    assert cheaper.dearer_usd_per_hour == 20


def test_without_skypilot_the_comparison_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from gpuplan.launcher.skypilot import prices

    def missing(_name: str) -> None:
        raise ImportError("No module named 'sky'")

    monkeypatch.setattr(prices, "import_module", missing)
    with pytest.raises(GpuplanError, match="not installed"):
        price_differences(TASK, make_plan(nodes=2, layout="fsdp16"), PLACES)


def test_the_command_says_what_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    put(tmp_path / "person", downloaded=True)
    monkeypatch.setenv("HOME", str(tmp_path / "person"))
    assert run(["offers", "--export-sky", str(tmp_path / "own")]) == 0
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith("aws: 1 offers priced; ") and NOT_THERE in first
    assert "gcp" in last and "aws" not in last
    assert run(["offers", "--export-sky", str(tmp_path / "own")]) == 0
    assert "these already" in capsys.readouterr().out
    assert run(["offers", "--export-sky", str(tmp_path / "person")]) == 2
