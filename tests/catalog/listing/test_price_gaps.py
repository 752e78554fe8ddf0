"""What the package lacks is said where it is missed, and is really lacking."""

from fnmatch import fnmatchcase

import pytest

from gpuplan.catalog.embedded import embedded_catalogue
from gpuplan.catalog.listing.price_gaps import PriceGap, gap_of, price_gaps
from gpuplan.cli.main import run

CATALOGUE = embedded_catalogue()


@pytest.mark.parametrize("gap", price_gaps(), ids=lambda gap: f"{gap.instance_type} {gap.missing}")
def test_a_gap_is_one(gap: PriceGap) -> None:
    offers = [
        one
        for one in CATALOGUE.offers
        if one.provider == gap.provider and fnmatchcase(one.instance_type, gap.instance_type)
    ]
    assert gap.source and gap.accelerator in CATALOGUE.accelerators
    if gap.missing == "type":
        assert offers == []
    elif gap.missing == "on-demand":
        assert offers and all(one.on_demand_usd_per_hour is None for one in offers)
    else:
        unknown = sum(one.spot_usd_per_hour is None for one in offers)
        assert unknown > len(offers) / 2


def test_a_type_without_a_gap_has_none() -> None:
    assert gap_of("aws", "p5.48xlarge", "on-demand") is None
    assert gap_of("aws", "p5en.48xlarge", "on-demand") is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--accelerator", "TPU-v7"), "gcp tpu7x-* on-demand: in no source of the package"),
        (("--instance", "p5e.48xlarge"), "aws p5e.* on-demand: sold in Capacity Blocks"),
        (("--instance", "g6e.4xlarge"), "aws g6e.* spot: spot prices of few sizes"),
        (("--accelerator", "GB300", "--provider", "azure"), "azure Standard_ND*GB300_v6: not in"),
        (("--accelerator", "GB300", "--provider", "coreweave"), "coreweave gb300-4x: not in"),
        (("--accelerator", "H200:8", "--provider", "gcp"), "gcp a3-ultragpu-* on-demand: in no"),
    ],
)
def test_a_list_says_what_it_lacks(words, said: str, capsys) -> None:
    run(["offers", *words])
    assert said in " ".join(capsys.readouterr().out.split())


def test_a_list_without_gaps_says_nothing(capsys) -> None:
    assert run(["offers", "--instance", "p5.48xlarge", "--region", "us-east-1"]) == 0
    assert "Capacity Blocks" not in capsys.readouterr().out


def test_an_unknown_type_with_a_known_reason_says_it(capsys) -> None:
    assert run(["offers", "--instance", "p6e-gb200.36xlarge"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "It is sold as UltraServers in Capacity Blocks alone" in said
