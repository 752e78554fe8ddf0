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


@pytest.fixture(scope="module")
def adapters() -> Inputs:
    """Return a small decoder of which adapters alone are trained."""
    example = EXAMPLE.with_name("lora.py")
    sizes = {"layers": 2, "hidden": 256, "heads": 4, "kv_heads": 4, "ffn": 512, "vocab": 1000}
    return api.read_inputs(example, params={**sizes, "seq_len": 128})


def test_a_4_bit_base_is_multiplied_in_what_the_device_has(adapters: Inputs) -> None:
    """`--frozen-precision nf4 --on T4` ended in "T4 has no bf16-amp units"."""
    assert api.fits(adapters, "T4", frozen_precision="nf4").precision == "fp16-amp"
    assert api.fits(adapters, "A10G", frozen_precision="nf4").precision == "bf16-amp"
    with pytest.raises(UsageError, match="for which T4 has no units") as refused:
        api.fits(adapters, "T4", frozen_precision="bf16")
    assert "--frozen-precision nf4" in (refused.value.fix or "")


@pytest.mark.parametrize(
    ("on", "said"),
    [
        ("GH200-96GB:8", "this is the memory of each of 8: machines that are sold have 1 GH200-96"),
        ("RTX-4090:4", "machines that are sold have 1 RTX-4090 at most, and the network between"),
        ("GH200-96GB", None),
        ("A10G:1000", None),  # Machines of 8 reach each other.
        ("H100:8", None),
        ("Titan-RTX:4", None),  # Nobody sells it, so it is the user's own.
    ],
)
def test_several_that_no_machine_joins_are_said_to_be_so(
    adapters: Inputs, on: str, said: str | None
) -> None:
    """`fits --on GH200:8` said Yes, where `estimate` plans no eight of them."""
    answer = api.fits(adapters, on, precision="fp32", frozen_precision="fp32")
    found = [note for note in answer.notes if "the memory of each" in note]
    assert answer.fits
    assert found == [] if said is None else said in found[0]
