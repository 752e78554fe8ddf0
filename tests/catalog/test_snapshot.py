import csv
import json
import subprocess
import sys
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest

from gpuplan.catalog.csv_rows import read_offers
from gpuplan.catalog.embedded import CURATED_DIR, DATA_DIR, read_catalogue, snapshot_facts
from gpuplan.catalog.gathered.build_snapshot import (
    SnapshotError,
    build_snapshot,
    main,
    outliers,
    violations,
)
from gpuplan.catalog.snapshot import load_catalogue

ROOT = Path(__file__).parents[2]
CANDIDATES = [folder / "shared" / "data" / "catalog" for folder in (ROOT, ROOT.parent)]
SOURCE = next((folder for folder in CANDIDATES if folder.is_dir()), CANDIDATES[0])


@pytest.fixture
def source(require):
    require("gathered-tables", "the snapshot is rebuilt from them")
    return SOURCE


@pytest.fixture(scope="module")
def validated():
    return read_catalogue(DATA_DIR, validate=True)


def test_every_row_validates_and_no_invariant_is_broken(validated):
    assert list(violations(validated)) == []


def test_trusted_loading_equals_validated_loading(validated):
    trusted = load_catalogue()
    assert trusted.offers == validated.offers
    assert trusted.cpu_offers == validated.cpu_offers
    assert dict(trusted.instances) == dict(validated.instances)
    assert dict(trusted.accelerators) == dict(validated.accelerators)
    assert dict(trusted.providers) == dict(validated.providers)
    assert dict(trusted.regions) == dict(validated.regions)


def test_snapshot_json_counts_the_rows_it_stands_beside():
    facts = snapshot_facts()
    assert facts["schema_version"] == 1
    rows = facts["rows"]
    assert isinstance(rows, dict)
    for name, count in rows.items():
        with (DATA_DIR / name).open(newline="", encoding="utf-8") as file:
            assert sum(1 for _ in csv.reader(file)) - 1 == count, name
    assert load_catalogue().snapshot_date == date.fromisoformat(str(facts["date"]))


def test_known_prices_and_specs_survive_the_conversion():
    catalogue = load_catalogue()
    p5 = next(
        o
        for o in catalogue.offers
        if (o.instance_type, o.region) == ("p5.48xlarge", "us-east-1") and o.provider == "aws"
    )
    assert p5.on_demand_usd_per_hour == Decimal("55.04")
    assert p5.usd_per_accelerator_hour("on-demand") == Decimal("6.88")
    h100 = catalogue.accelerators["H100-80GB-SXM"]
    assert h100.memory_bytes == 80 * 2**30
    assert h100.memory_visible_bytes == 81082 * 2**20
    assert h100.peak_flops["bf16"] == 989.4e12
    assert h100.link_bytes_per_s == 450e9
    instance = catalogue.instances["aws", "p5.48xlarge"]
    assert instance.inter_link.bytes_per_s == 400e9
    assert instance.inter_link.rdma is True
    assert instance.intra_link.switched is True
    assert instance.can_cluster


def test_unknown_is_none_never_zero():
    catalogue = load_catalogue()
    unpriced = [o for o in catalogue.offers if o.price_basis == "unpriced"]
    assert len(unpriced) == 504
    assert all(o.on_demand_usd_per_hour is None and o.spot_usd_per_hour is None for o in unpriced)
    single = catalogue.instances["lambda", "lambda-h100-sxm-on-demand"]
    assert single.intra_link.bytes_per_s is None
    assert not single.can_cluster
    assert "bf16" not in catalogue.accelerators["V100-16GB-SXM2"].peak_flops


def test_a_slice_of_a_device_never_clusters():
    slices = [i for i in load_catalogue().instances.values() if i.is_fractional]
    assert slices
    assert not any(i.can_cluster for i in slices)


def test_nvl72_shares_one_link_domain_across_instances():
    instance = load_catalogue().instances["azure", "Standard_ND128isr_NDR_GB200_v6"]
    assert (instance.accelerators, instance.link_domain_accelerators) == (4, 72)


def test_every_region_of_the_big_clouds_has_a_country_and_global_has_none():
    catalogue = load_catalogue()
    for offer in catalogue.offers:
        country = catalogue.jurisdiction_of(offer)
        if offer.provider in ("aws", "azure", "gcp"):
            assert country is not None, (offer.provider, offer.region)
        if offer.region == "global":
            assert country is None


def test_cpu_offers_are_apart_and_complete():
    catalogue = load_catalogue()
    assert catalogue.cpu_offers
    assert not any(offer.is_cpu for offer in catalogue.offers)
    for offer in catalogue.cpu_offers:
        assert offer.is_cpu
        device = catalogue.accelerator_of(offer)
        assert device is not None
        assert device.is_cpu
        assert {"fp32", "bf16"} <= device.peak_flops.keys()
        assert catalogue.instance_of(offer) is not None


def test_importing_and_loading_the_catalogue_imports_no_torch_yaml_or_sdk():
    code = (
        "import sys; from gpuplan.catalog.snapshot import load_catalogue; load_catalogue();"
        "print([m for m in ('torch', 'numpy', 'yaml', 'rich', 'boto3') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_rebuilding_gives_the_same_bytes(source, tmp_path, capsys):
    assert main(["--source", str(source), "--out", str(tmp_path)]) == 0
    generated = sorted(path.name for path in tmp_path.iterdir())
    assert "snapshot.json" in generated
    for name in generated:
        assert (tmp_path / name).read_bytes() == (DATA_DIR / name).read_bytes(), name
    assert "warning: azure/brazilsouth" in capsys.readouterr().err


def test_permissive_only_leaves_the_unlicensed_prices_out(source, tmp_path):
    build_snapshot(source, tmp_path, permissive_only=True)
    kept = read_offers(tmp_path / "offers.csv")
    assert 2000 < len(kept) < 3221
    assert "none-found" not in {offer.licence for offer in kept}


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ({"spot_usd_per_hour": "999"}, "is above on-demand"),
        ({"on_demand_usd_per_hour": "0"}, "is not above zero"),
        ({"on_demand_usd_per_hour": "NaN"}, "should be a finite number"),
        ({"snapshot_date": "July 2026"}, "Invalid isoformat"),
        ({"accelerator": "H9000"}, "accelerator H9000: no spec row and no alias"),
        ({"provider": "acme"}, "unknown provider"),
    ],
)
def test_a_broken_source_is_refused_and_nothing_is_written(source, tmp_path, capsys, edit, message):
    broken, out = tmp_path / "source", tmp_path / "out"
    broken.mkdir()
    for path in source.glob("*.csv"):
        (broken / path.name).write_bytes(path.read_bytes())
    with (broken / "offers.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    victim = next(r for r in rows if r["instance_type"] == "p5.48xlarge")
    victim.update(edit)
    with (broken / "offers.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(victim))
        writer.writeheader()
        writer.writerows(rows)
    assert main(["--source", str(broken), "--out", str(out)]) == 1
    assert message in capsys.readouterr().err
    assert list(out.iterdir()) == []


def test_a_repeated_offer_is_refused(source, tmp_path):
    for path in source.glob("*.csv"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    offers = tmp_path / "offers.csv"
    lines = offers.read_text("utf-8").splitlines(keepends=True)
    offers.write_text("".join([*lines, lines[-1]]), "utf-8")
    with pytest.raises(SnapshotError, match="is there twice"):
        build_snapshot(tmp_path, tmp_path / "out")


def test_outliers_are_warned_about_and_stay():
    offers = load_catalogue().offers
    warned = list(outliers(offers))
    assert warned == snapshot_facts()["warnings"]
    assert any("brazilsouth" in line for line in warned)


def test_hand_kept_tables_state_a_source_on_every_row():
    for path in CURATED_DIR.glob("*.csv"):
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        assert rows, path.name
        assert all(row["source"] for row in rows), path.name
    assert json.loads((DATA_DIR / "snapshot.json").read_text("utf-8"))["prices"]["newest"]
