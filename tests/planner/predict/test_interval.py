"""The 80 % interval of a step: wider where more can be wrong, and where less was seen."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.catalog.types import Link
from gpuplan.catalog.vocabulary import Precision, Stack
from gpuplan.planner.constants import Constants
from gpuplan.planner.hardware.cluster import Site
from gpuplan.planner.plan.layout import Layout, parse_layout
from gpuplan.planner.plan.setup import Setup
from gpuplan.planner.predict.interval import (
    doubt,
    memory_sigma,
    oom_margin,
    oom_probability,
    safe_allocator_bytes,
    safe_peak_bytes,
    step_doubts,
    step_interval,
)
from gpuplan.planner.predict.kept.model_cache import ModelCache
from gpuplan.planner.predict.predict import predict
from gpuplan.planner.step.data_parallel_step import StepTimes
from gpuplan.profiles.curves.choice import USUAL_CURVES, CurveChoice
from gpuplan.profiles.curves.device_curves import curves_for
from gpuplan.profiles.curves.files import measured_accelerators
from gpuplan.profiles.profile import Profile

FORM = {"form.torch-eager": 1.0}
USUAL = Constants.shipped()


def width(doubts: dict[str, float]) -> float:
    time = step_interval(2.0, doubts, USUAL)
    assert time.low < time.value < time.high
    assert math.isclose(time.value / time.low, time.high / time.value)
    return time.high / time.value


def test_every_doubt_widens_the_interval():
    for name in ("curves", "memory", "launch", "communication", "pipeline", "experts", "old"):
        assert width({**FORM, name: 0.5}) > width({**FORM, name: 0.1}) > width(FORM), name


def test_doubts_add_in_quadrature():
    one, other = doubt(FORM, USUAL), doubt({"launch": 1.0}, USUAL)
    assert doubt({**FORM, "launch": 1.0}, USUAL) == pytest.approx(math.hypot(one, other))


def doubts_about(name: str, stack: Stack, **changed: Any) -> dict[str, float]:
    """Return what is doubtful about a step of one second of products on this accelerator."""
    nothing = np.zeros((1, 1))
    parts = StepTimes(
        compute_s=nothing + 1.0,
        memory_bound_s=nothing,
        launch_s=nothing,
        optimizer_s=nothing,
        data_comm_exposed_s=nothing,
    )
    usual: dict[str, Any] = {"date": None, "accelerators": 8, "nodes": 1, "sources": 3}
    usual |= {
        "dtype": "bf16",
        "has_experts": False,
        "has_convolutions": False,
        "new_kernel_share": 0.0,
    }
    curves = curves_for(load_catalogue().accelerators[name], USUAL_CURVES)
    return step_doubts(parts, curves, stack=stack, **{**usual, **changed})


def test_the_fewer_sources_used_a_stack_on_an_architecture_the_less_sure():
    widths = [width(doubts_about("B200-180GB-SXM", "megatron", sources=n)) for n in (0, 1, 3, 12)]
    assert widths == sorted(set(widths), reverse=True)


def test_a_rack_in_one_nvlink_domain_is_less_sure_than_boards_of_its_chips():
    rack, board = (doubts_about(name, "megatron") for name in ("GB200", "B200-180GB-SXM"))
    assert (
        rack["rack"] == 1 and board["rack"] == doubts_about("GH200-96GB", "megatron")["rack"] == 0
    )
    assert width({**board, "rack": 1.0}) > width(board)


def test_xla_is_surer_on_the_devices_that_it_was_made_for():
    gpu, tpu = (width(doubts_about(name, "xla")) for name in ("H100-80GB-SXM", "TPU-v5e"))
    assert gpu > tpu


@pytest.mark.parametrize(
    ("name", "precision", "stack"),
    [
        ("H100-80GB-SXM", "bf16-amp", "torch-eager"),
        ("A100-80GB-SXM", "bf16-amp", "torch-eager"),
        ("L4", "bf16-amp", "torch-eager"),
        ("T4", "fp16-amp", "torch-eager"),
        ("MI300X", "bf16-amp", "torch-eager"),
        ("TPU-v5e", "bf16-amp", "xla"),
    ],
)
def test_a_newcomer_is_never_surer_than_what_was_measured(
    toy: Profile, name: str, precision: Precision, stack: Stack
) -> None:
    """As `--hold-out accelerator`, of which docs/accuracy.md says how often it holds."""
    device = load_catalogue().accelerators[name]
    link = Link(name="link", bytes_per_s=device.link_bytes_per_s)
    alone = Site(accelerator=device, per_node=1, nodes=1, intra_link=link, inter_link=link)
    setup = Setup(
        layout=Layout(),
        precision=precision,
        micro_batch=32,
        stack=stack,
        autocast=stack != "xla",
    )

    def half_width(choice: CurveChoice) -> float:
        cache = ModelCache(toy, curve_choice=choice)
        time = predict(toy, alone, setup, cache=cache).step_time_s
        assert time.high is not None
        return time.high / time.value

    known, new = half_width(USUAL_CURVES), half_width(USUAL_CURVES.without([name]))
    has_measurements = name in measured_accelerators() or name == "MI300X"  # Its level is measured.
    assert new > known if has_measurements else new == pytest.approx(known)


def test_an_unknown_doubt_is_refused():
    with pytest.raises(KeyError):
        doubt({"moon": 1.0}, USUAL)


def test_nothing_takes_no_time_for_sure():
    time = step_interval(0.0, FORM, USUAL)
    assert time.low == time.value == time.high == 0.0


@given(
    allocator=st.floats(1e6, 1e12),
    framework=st.floats(1e6, 1e10),
    max_oom=st.floats(0.001, 0.5),
    form=st.sampled_from(["dp1", "fsdp8", "dp1.tp8", "dp1.pp4", "dp2.tp4.sp.pp2", "fsdp4.cp2"]),
)
def test_a_safe_capacity_is_the_one_that_leaves_the_risk(
    allocator: float, framework: float, max_oom: float, form: str
) -> None:
    layout = parse_layout(form)
    need = safe_peak_bytes(
        np.array(allocator), framework, stack="torch-eager", layout=layout, max_oom=max_oom
    ).item()

    def risk(capacity: float) -> float:
        return oom_probability(
            allocator, framework, capacity_bytes=capacity, stack="torch-eager", layout=layout
        )

    assert risk(need) == pytest.approx(max_oom, abs=2e-6)
    assert risk(0.9 * need) >= risk(need) >= risk(1.1 * need)


@given(
    capacity=st.integers(10 * 2**30, 400 * 2**30),
    framework=st.integers(2**20, 4 * 2**30),
    max_oom=st.floats(0.001, 0.49),
    form=st.sampled_from(["dp8.zero1", "dp1.tp8", "dp1.pp4", "dp2.tp4.sp.pp2"]),
)
def test_the_largest_safe_peak_needs_the_capacity(
    capacity: int, framework: int, max_oom: float, form: str
) -> None:
    """Whole bytes too, whose squares no 64-bit integer holds."""
    layout = parse_layout(form)
    held = safe_allocator_bytes(
        capacity,
        np.array([framework]),
        margin=np.array([oom_margin(layout)]),
        sigma=np.array([memory_sigma("torch-eager", layout)]),
        max_oom=max_oom,
    )
    need = safe_peak_bytes(held, framework, stack="torch-eager", layout=layout, max_oom=max_oom)
    assert need.item() == pytest.approx(capacity, rel=1e-9)


def test_stages_that_fsdp_shards_beside_tensor_ranks_have_the_largest_margin() -> None:
    split = Layout(data=4, tensor=2, pipeline=2)
    sharded = Layout(data=4, shard=4, zero_stage=3, tensor=2, pipeline=2)
    alone = Layout(data=4, shard=4, zero_stage=3, pipeline=2)
    assert oom_margin(sharded) > oom_margin(split) > oom_margin(alone) == 0


def test_layouts_that_split_the_model_need_more_room() -> None:
    def risk(form: str) -> float:
        return oom_probability(
            70e9,
            1e9,
            capacity_bytes=79e9,
            stack="torch-eager",
            layout=parse_layout(form),
        )

    assert risk("fsdp8") < risk("dp1.tp8") < risk("dp1.tp4.pp2")
