"""The real SkyPilot reads exported tasks, and its optimizer takes the plan's machines."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml
from answers import make_offer, make_plan
from sky_tables import write_tables

from gpuplan.catalog.snapshot import Catalogue, load_catalogue
from gpuplan.catalog.types import Offer
from gpuplan.catalog.vocabulary import OfferPurchase
from gpuplan.launcher.prepare.project import Project
from gpuplan.launcher.prepare.task.export import ExportJob, export
from gpuplan.launcher.prepare.task.node_setup import Environment
from gpuplan.launcher.skypilot.home import write_prices

CHILD = Path(__file__).parents[2] / "support" / "sky_prices.py"
CENT = Decimal("0.01")


@dataclass(frozen=True)
class Case:
    provider: str
    instance_type: str
    region: str
    purchase: OfferPurchase
    nodes: int


CASES = (
    Case("aws", "p4d.24xlarge", "us-east-1", "on-demand", 1),
    Case("aws", "p4d.24xlarge", "us-east-1", "on-demand", 2),
    Case("aws", "g5.12xlarge", "us-east-1", "on-demand", 1),
    Case("gcp", "a2-highgpu-8g", "us-central1", "on-demand", 2),
    Case("gcp", "g2-standard-4", "us-central1", "spot", 1),
    Case("azure", "Standard_NC24ads_A100_v4", "eastus", "on-demand", 1),
)


def offer_of(catalogue: Catalogue, case: Case) -> Offer:
    wanted = case.provider, case.instance_type, case.region
    return next(
        one
        for one in catalogue.offers
        if (one.provider, one.instance_type, one.region) == wanted
        and one.usd_per_hour(case.purchase) is not None
    )


def exported(catalogue: Catalogue, offer: Offer, case: Case) -> Mapping[str, Any]:
    usd = offer.usd_per_hour(case.purchase)
    assert usd is not None
    sold = make_offer(
        provider=offer.provider,
        region=offer.region,
        instance_type=offer.instance_type,
        accelerator=offer.accelerator,
        accelerators_per_node=int(offer.accelerators),
        purchase=case.purchase,
        usd_per_hour=float(usd),
    )
    layout = f"dp{int(offer.accelerators) * case.nodes}"
    plan = make_plan(layout=layout, nodes=case.nodes, offer=sold)
    environment = Environment(found=None, torch_version="2.13.0", python_version="3.12")
    project = Project(workdir=Path("/code"), owner="me", environment=environment)
    job = ExportJob(plan=plan, command="train.py", project=project, catalogue=catalogue)
    return yaml.safe_load(export(job, "skypilot").text)


@pytest.mark.slow
def test_the_optimizer_takes_the_machines_of_an_exported_plan(tmp_path: Path, require) -> None:
    require("skypilot", "its parser and its optimizer read what is exported")
    whole = load_catalogue()
    offers = [offer_of(whole, case) for case in CASES]
    # SkyPilot takes long over tables with all regions.
    few = replace(whole, offers=tuple(dict.fromkeys(offers)))
    clouds = sorted({case.provider for case in CASES})
    own = tmp_path / "own"
    write_tables(own, few, clouds)
    write_tables(tmp_path, few, clouds)
    assert write_prices(own, few, person=tmp_path) is not None
    tasks = [exported(few, *one) for one in zip(offers, CASES, strict=True)]
    done = subprocess.run(
        [sys.executable, str(CHILD), str(own)],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "PYTHONWARNINGS": "ignore"},
        input="".join(f"{json.dumps(task)}\n" for task in tasks),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    for offer, case, answer in zip(offers, CASES, answers, strict=True):
        usd = offer.usd_per_hour(case.purchase)
        assert usd is not None
        assert abs(Decimal(str(answer.get("usd", -1))) - case.nodes * usd) < CENT, (case, answer)
        assert case.region in answer["took"], answer
