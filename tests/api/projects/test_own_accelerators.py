"""Machines of the user's own count as what there is, where runs are planned on them alone."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpuplan.api.projects.project_capacity import own_accelerators
from gpuplan.catalog.embedded import Catalogue, embedded_catalogue
from gpuplan.catalog.errors import UsageError
from gpuplan.catalog.snapshot import add_offers
from gpuplan.catalog.user_files.offers import load_user_offers

FILE = """\
offers:
  - {provider: our-lab, region: basement, instance: hgx, accelerator: H100-80GB-SXM,
     accelerators_per_node: 8, usd_per_hour: 20, nodes: 4}
  - {provider: our-lab, region: attic, instance: hgx-old, accelerator: H100-80GB-SXM,
     accelerators_per_node: 4, usd_per_hour: 12, nodes: 2}
  - {provider: our-lab, region: attic, instance: dgx, accelerator: A100-80GB-SXM,
     accelerators_per_node: 8, usd_per_hour: 9}
"""


def catalogue_with(folder: Path, text: str = FILE) -> Catalogue:
    (folder / "own.yaml").write_text(text)
    return add_offers(
        embedded_catalogue(), load_user_offers(folder / "own.yaml", embedded_catalogue())
    )


def span(
    provider: str,
    region: str,
    kind: str,
    accelerator: str = "H100-80GB-SXM",
    way: str = "on-demand",
) -> Any:
    cost = SimpleNamespace(
        provider=provider, region=region, sku=f"{kind} {way}", accelerator=accelerator
    )
    return SimpleNamespace(of=SimpleNamespace(chosen=lambda: cost))


def test_all_own_machines_of_a_kind_count(tmp_path: Path) -> None:
    spans = [span("our-lab", "basement", "hgx")]
    assert own_accelerators(spans, catalogue_with(tmp_path)) == {"H100-80GB-SXM": 40}


def test_bought_machines_count_as_those_with_a_price_do(tmp_path: Path) -> None:
    owned = (
        "owned: {capex_usd: 260000, lifetime_years: 4, power_w: 10200, usd_per_kwh: 0.2,"
        " pue: 1.3, utilisation: 0.8}"
    )
    text = FILE.replace("usd_per_hour: 20", owned)
    spans = [span("our-lab", "basement", "hgx", way="owned")]
    assert own_accelerators(spans, catalogue_with(tmp_path, text)) == {"H100-80GB-SXM": 40}


def test_a_kind_that_is_rented_too_has_no_limit(tmp_path: Path) -> None:
    spans = [span("our-lab", "basement", "hgx"), span("aws", "us-east-1", "p5.48xlarge")]
    assert own_accelerators(spans, catalogue_with(tmp_path)) == {}


def test_machines_without_a_number_are_as_many_as_wanted(tmp_path: Path) -> None:
    spans = [span("our-lab", "attic", "dgx", "A100-80GB-SXM")]
    assert own_accelerators(spans, catalogue_with(tmp_path)) == {}


@pytest.mark.parametrize("nodes", ["2.5", "0", "-1"])
def test_a_number_of_machines_is_a_whole_one(tmp_path: Path, nodes: str) -> None:
    with pytest.raises(UsageError, match="nodes"):
        catalogue_with(tmp_path, FILE.replace("nodes: 4", f"nodes: {nodes}"))
