"""Which precisions a device is predicted in, and which it is proposed with."""

import pytest

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.catalog.types import Link
from gpuplan.planner.hardware.cluster import Site
from gpuplan.planner.hardware.device import peak_flops, supported_precisions
from gpuplan.planner.plan.errors import UnsupportedError
from gpuplan.planner.plan.layout import Layout
from gpuplan.planner.plan.setup import Setup
from gpuplan.planner.predict.supported import refuse_unsupported

CATALOGUE = load_catalogue()


def refuse(name: str, precision: str) -> None:
    link = Link(name=None, bytes_per_s=1e10)
    device = CATALOGUE.accelerators[name]
    site = Site(accelerator=device, per_node=1, nodes=1, intra_link=link, inter_link=link)
    setup = Setup(layout=Layout(), precision=precision, micro_batch=1)  # pyright: ignore[reportArgumentType]
    refuse_unsupported(site, setup)


def test_fp16_without_units_is_predicted_at_the_rate_of_fp32_and_not_proposed() -> None:
    refuse("P4", "fp16-amp")
    device = CATALOGUE.accelerators["P4"]
    assert peak_flops(device, "fp16-amp") == device.peak_flops["fp32"]
    assert supported_precisions(device) == ("fp32",)


def test_an_fp16_peak_that_a_user_left_out_is_unknown() -> None:
    device = CATALOGUE.accelerators["H100-80GB-SXM"]
    peaks = {name: peak for name, peak in device.peak_flops.items() if name != "fp16"}
    assert peak_flops(device.model_copy(update={"peak_flops": peaks}), "fp16-amp") is None


def test_bf16_without_units_is_refused_with_what_is_allowed() -> None:
    with pytest.raises(UnsupportedError, match="P4 has no bf16-amp units") as error:
        refuse("P4", "bf16-amp")
    assert error.value.fix == "give --precision one of fp32, fp16-amp."
