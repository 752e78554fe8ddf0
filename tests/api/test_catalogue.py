"""Offers, accelerators and model files from Python: typed answers, nothing printed."""

from decimal import Decimal
from pathlib import Path

import pytest

from gpuplan import api
from gpuplan.catalog.errors import UsageError


def test_offers_are_filtered_and_the_cheapest_come_first(capsys) -> None:
    found = api.offers(accelerators=["H100"], providers=["aws", "gcp"], top=5)
    prices = [one.on_demand_usd_per_accelerator_hour for one in found.offers]
    known = [price for price in prices if price is not None]
    assert len(prices) == 5 and known == sorted(known)
    assert {one.provider for one in found.offers} <= {"aws", "gcp"}
    assert capsys.readouterr() == ("", "")


def test_a_limit_on_the_price_and_on_the_kind_of_purchase_holds_for_every_offer() -> None:
    found = api.offers(purchase="spot", max_usd_per_hour=2, everything=True)
    assert found.offers
    for one in found.offers:
        assert one.spot_usd_per_hour is not None and one.spot_usd_per_hour <= Decimal(2)


def test_all_providers_means_marketplaces_too() -> None:
    usual, every = (api.offers(providers=named).matched for named in ((), ("all",)))
    assert every > usual


def test_a_gpu_is_found_by_any_of_its_names() -> None:
    assert api.gpu("h200").accelerator.name in {one.name for one in api.gpus().accelerators}
    with pytest.raises(UsageError):
        api.gpu("H1000000")


def test_a_model_file_is_written_once_and_replaced_only_by_force(tmp_path: Path) -> None:
    target = tmp_path / "net.py"
    assert api.init(target) == target
    assert "def build_model(" in target.read_text()
    with pytest.raises(UsageError, match="exists already"):
        api.init(target)
    target.write_text("")
    api.init(target, force=True)
    assert target.read_text()


def test_a_model_file_around_a_class_lies_beside_it(tmp_path: Path) -> None:
    source = tmp_path / "net.py"
    source.write_text(
        "from torch import nn\n\n"
        "class Net(nn.Module):\n    def forward(self, x):\n        return x\n"
    )
    target = api.init(source=source)
    assert target == tmp_path / "gpuplan_model.py"
    assert "from net import Net" in target.read_text()
    with pytest.raises(UsageError, match="is not in the folder"):
        api.init(tmp_path / "other" / "model.py", source=source)
    with pytest.raises(UsageError, match="has no class Other"):
        api.init(source=f"{source}:Other", force=True)


def test_curves_of_a_file_that_is_not_there_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="There is no file"):
        api.check_curves(tmp_path / "none.json")
