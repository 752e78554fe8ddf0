"""Whether a step fits on several accelerators, if nothing is said of how they share the state."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpuplan import api
from gpuplan.api import memory_fit
from gpuplan.api.memory_fit import counted
from gpuplan.api.models.inputs import Inputs
from gpuplan.catalog.errors import UsageError
from gpuplan.catalog.vocabulary import Precision
from gpuplan.planner.plan.errors import UnsupportedError
from gpuplan.planner.plan.layout import Layout
from gpuplan.planner.predict.fits import FitsAnswer

EXAMPLE = Path(__file__).parents[2] / "examples" / "decoder.py"
SIZES = {"layers": 4, "hidden": 4096, "heads": 32, "kv_heads": 8, "ffn": 11008, "vocab": 32000}


@pytest.fixture(scope="module")
def inputs() -> Inputs:
    """Return a decoder whose state in fp32 with AdamW takes more than a card of 16 GB has."""
    return api.read_inputs(EXAMPLE, params={**SIZES, "seq_len": 256})


def test_all_of_the_state_is_held_by_each_where_that_fits(inputs: Inputs) -> None:
    answer = api.fits(inputs, "A100-40GB-SXM:8", frozen_precision="fp32")
    assert answer.fits
    assert answer.layout == Layout(data=8)
    assert not any("whole state" in note for note in answer.notes)


def test_the_state_is_divided_where_not(inputs: Inputs) -> None:
    alone = api.fits(inputs, "T4", frozen_precision="fp32")
    assert not alone.fits
    answer = api.fits(inputs, "T4:8", frozen_precision="fp32")
    assert answer.fits
    assert answer.layout == Layout(data=8, shard=8, zero_stage=3)
    assert answer.notes[0].startswith("where each accelerator holds the whole state (dp8) a step")
    assert answer.notes[0].endswith("of each; fsdp8 divides it among them")


def test_one_of_them_is_one_accelerator(inputs: Inputs) -> None:
    assert api.fits(inputs, "H200:1", frozen_precision="fp32").layout == Layout()


def test_a_layout_of_another_number_is_refused(inputs: Inputs) -> None:
    with pytest.raises(UsageError, match="T4:8 are 8 accelerators, and the layout fsdp4 takes 4"):
        api.fits(inputs, "T4:8", layout=Layout(data=4, shard=4, zero_stage=3))
    layout = Layout(data=4, tensor=2)
    answer = api.fits(inputs, "H200:8", layout=layout, frozen_precision="fp32")
    assert answer.layout == layout


def test_what_the_model_does_not_allow_is_passed_over(
    inputs: Inputs, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = memory_fit._fits

    def only(*allowed: int) -> Callable[..., FitsAnswer]:
        def fits(*given: Any, layout: Layout | None, **how: Any) -> FitsAnswer:
            if layout is None or layout.zero_stage not in allowed:
                raise UnsupportedError("not so")
            return real(*given, layout=layout, **how)

        return fits

    monkeypatch.setattr(memory_fit, "_fits", only(0))
    assert not api.fits(inputs, "T4:8", frozen_precision="fp32").fits
    monkeypatch.setattr(memory_fit, "_fits", only(3))
    assert api.fits(inputs, "H200:8", frozen_precision="fp32").layout.zero_stage == 3
    monkeypatch.setattr(memory_fit, "_fits", only())
    with pytest.raises(UnsupportedError, match="not so"):
        api.fits(inputs, "H200:8", frozen_precision="fp32")


def test_a_number_behind_a_name_is_how_many() -> None:
    assert counted("H100:8") == ("H100", 8)
    assert counted("H100") == ("H100", None)
    assert counted("H100:many") == ("H100:many", None)


@pytest.mark.parametrize(
    ("device", "precision", "said"),
    [
        ("K80", "fp32", "nothing trains on K80, whose compute capability 3.7 is older"),
        ("Inferentia2", "bf16-amp", "nothing trains on Inferentia2, which infers"),
        ("TPU-v5e", "bf16-amp", "TPU-v5e runs a torch file after a port to XLA only"),
        ("T4G", "fp32", "no published build of torch"),
        ("A10G", "fp32", None),
    ],
)
def test_a_device_that_runs_no_plain_torch_is_said_beside_the_memory(
    inputs: Inputs, device: str, precision: Precision, said: str | None
) -> None:
    """ "Yes, it takes 0.8 GiB of 11.2 GiB on K80" was all that was said."""
    notes = api.fits(inputs, device, precision=precision).notes
    if said is None:
        assert not any("torch" in note for note in notes)
    else:
        assert any(said in note for note in notes)
