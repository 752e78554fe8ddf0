"""Past software: which kernels and collectives a run of an earlier date or another stack had."""

import pytest

from gpuplan.catalog.vocabulary import Precision
from gpuplan.planner.constants import Constants
from gpuplan.planner.parallelism.fsdp import Unit
from gpuplan.planner.plan.layout import Layout
from gpuplan.planner.plan.setup import Setup
from gpuplan.planner.predict.setup import recompute_policies, wire_bytes
from gpuplan.planner.software.state_bytes import state_scale
from gpuplan.planner.software.versions import (
    BLOCKING_TENSOR,
    TRANSFORMER_ENGINE,
    attention_date,
    calls_torch_attention,
    fuses_experts,
    is_python_bound,
    keeps_softmax_inputs,
    lacks_grouped_kernels,
    narrow_products,
    optimizer_traffic,
    picks_layouts,
    sent_parts,
    tensor_exposure,
)
from gpuplan.planner.step.slotted_calls import SlottedCall, slotted_calls

USUAL = Constants.shipped()
PARAMETERS = 800_000_000
UNITS = (
    Unit(name="block", count=7, parameters=100_000_000, trainable=100_000_000, tensors=()),
    Unit(name=None, count=1, parameters=100_000_000, trainable=100_000_000, tensors=()),
)


def calls(layout: Layout, stack: str, precision: Precision = "bf16-amp") -> tuple[SlottedCall, ...]:
    wire = wire_bytes(precision, "megatron" if stack == "megatron" else "torch-eager")
    return slotted_calls(UNITS, layout, wire)


def bytes_of(kind: str, found: tuple[SlottedCall, ...], *, across: bool = False) -> float:
    return sum(
        call.total_bytes * call.count
        for call in found
        if call.kind == kind and call.across_replicas == across and "bare" not in call.slot
    )


def test_a_recipe_may_leave_tensor_ranks_without_overlap():
    engine = frozenset({TRANSFORMER_ENGINE})
    overlapped = tensor_exposure("megatron", (2024, 5), engine, USUAL)
    assert overlapped < USUAL["tensor_exposure"]
    without = tensor_exposure("megatron", (2024, 5), engine | {BLOCKING_TENSOR}, USUAL)
    assert without == USUAL["tensor_exposure"]


@pytest.mark.parametrize(
    ("date", "features", "is_slow"),
    [
        ((2024, 5), frozenset(), True),
        ((2024, 5), frozenset({TRANSFORMER_ENGINE}), False),
        ((2025, 3), frozenset(), False),
        (None, frozenset(), False),
    ],
)
def test_the_engine_and_not_the_date_launches_lean_and_overlaps(date, features, is_slow):
    assert is_python_bound("megatron", date, features) == is_slow
    overlapped = tensor_exposure("megatron", date, features, USUAL) < USUAL["tensor_exposure"]
    assert overlapped != is_slow
    assert not is_python_bound("torch-eager", date, features)


def test_gradients_that_fsdp_reduces_in_bf16_are_half_the_bytes():
    usual = wire_bytes("bf16-amp")
    half = wire_bytes("bf16-amp", features=frozenset({"reduce-bf16"}))
    assert (usual.reduce, half.reduce) == (4, 2)
    assert (usual.gather, usual.refresh) == (half.gather, half.refresh)


def test_softmax_of_torch_before_1_11_keeps_its_input():
    assert keeps_softmax_inputs("torch-eager", (2021, 6))
    assert not keeps_softmax_inputs("torch-eager", (2022, 6))
    assert not keeps_softmax_inputs("torch-eager", None)
    assert not keeps_softmax_inputs("megatron", (2021, 6))


@pytest.mark.parametrize(
    ("precision", "features", "reduce"),
    [
        ("bf16-amp", frozenset(), 4),
        ("fp8", frozenset(), 4),
        ("bf16-amp", frozenset({"reduce-bf16"}), 2),
        ("fp16-amp", frozenset(), 2),
        ("bf16", frozenset(), 2),
    ],
)
def test_megatron_reduces_the_dtype_that_it_keeps_gradients_in(precision, features, reduce):
    wire = wire_bytes(precision, "megatron", (2025, 9), features)
    assert (wire.reduce, wire.reduces_whole, wire.gather) == (reduce, False, 2)
    traced = state_scale(precision, "megatron", sixteen_bit_layers=True, features=features)
    assert 2 * traced.gradients == reduce


def test_megatron_gathers_parameters_in_8_bits_where_the_recipe_says_so():
    usual = wire_bytes("fp8", "megatron", (2025, 9))
    narrow = wire_bytes("fp8", "megatron", (2025, 9), frozenset({"fp8-parameters"}))
    assert (usual.refresh, narrow.refresh) == (2, 1)
    assert (usual.gather, usual.reduce) == (narrow.gather, narrow.reduce)


@pytest.mark.parametrize("device", ["Blackwell", "Blackwell Ultra"])
def test_megatron_fuses_experts_in_fp8_on_blackwell_since_mid_2026(device):
    assert fuses_experts(device, "megatron", None, "fp8")
    assert fuses_experts(device, "megatron", (2026, 6), "fp8")
    assert not fuses_experts(device, "megatron", (2026, 4), "fp8")
    assert not fuses_experts(device, "megatron", None, "bf16-amp")
    assert not fuses_experts(device, "torch-compile", None, "fp8")
    assert not fuses_experts("Hopper", "megatron", None, "fp8")


def test_inductor_picks_the_memory_order_of_convolutions_since_torch_2_1():
    assert picks_layouts("torch-compile", None) and picks_layouts("torch-compile", (2024, 1))
    assert not picks_layouts("torch-compile", (2023, 4))
    assert not picks_layouts("torch-eager", None)


def test_general_kernels_convolve_groups_up_to_cudnn_8():
    assert lacks_grouped_kernels("torch-eager", (2022, 7))
    assert lacks_grouped_kernels("torch-compile", (2023, 4))
    assert not lacks_grouped_kernels("torch-compile", (2024, 1)), "Inductor picks the order"
    assert not lacks_grouped_kernels("torch-eager", (2024, 7))
    assert not lacks_grouped_kernels("torch-eager", None), "under cuDNN 9 nobody measured it"
    assert not lacks_grouped_kernels("xla", (2022, 7))


def test_a_fused_optimizer_moves_what_one_kernel_moves():

    def traffic(*features: str) -> float:
        return optimizer_traffic(
            "torch-eager",
            None,
            USUAL,
            autocast=True,
            sixteen_bit=True,
            features=frozenset(features),
        )

    assert traffic("fused-optimizer") == USUAL["optimizer_traffic.fused"]
    assert traffic("fused-optimizer") < traffic() == 1.0


def test_products_in_four_bits_and_in_int8_take_less_time():
    assert narrow_products(frozenset()) == 1.0
    assert narrow_products(frozenset({"int8"})) < narrow_products(frozenset({"nvfp4"})) < 1.0


def test_torch_s_zero_1_sends_units_once_a_step():
    """As launcher/runner/parallel/parallelize.py runs it: FSDP that keeps what it gathered."""
    found = calls(Layout(data=16, shard=16, zero_stage=1), "torch-eager")
    assert bytes_of("reduce_scatter", found) == bytes_of("all_gather", found) == 4 * PARAMETERS
    gathered = {call.slot for call in found if call.kind == "all_gather"}
    assert gathered == {"first_forward_s", "after_s"}  # The root is gathered before all else.
    assert all("last" in call.slot for call in found if call.kind == "reduce_scatter")
    sizes = {call.total_bytes for call in found}
    assert sizes == {4 * 100_000_000}  # Of one unit, root or block.


def test_parameters_are_gathered_under_the_first_forward_pass_since_the_engine():
    zero1 = Layout(data=16, shard=16, zero_stage=1)

    def slot(date, features=frozenset()):
        wire = wire_bytes("bf16-amp", "megatron", date, features)
        found = slotted_calls(UNITS, zero1, wire)
        return next(call.slot for call in found if call.kind == "all_gather")

    assert slot((2022, 10)) == "after_s"
    assert slot((2024, 3), frozenset({TRANSFORMER_ENGINE})) == "first_forward_s"
    assert slot(None) == "first_forward_s"


def test_megatron_sends_fp16_both_ways_and_sums_of_bf16_in_fp32():
    zero1 = Layout(data=16, shard=16, zero_stage=1)
    fp16, bf16 = calls(zero1, "megatron", "fp16-amp"), calls(zero1, "megatron")
    assert bytes_of("reduce_scatter", fp16) == pytest.approx(2 * PARAMETERS)
    assert bytes_of("reduce_scatter", bf16) == pytest.approx(4 * PARAMETERS)
    for found in (fp16, bf16):
        assert bytes_of("all_gather", found) == pytest.approx(2 * PARAMETERS)
    assert bytes_of("all_gather", calls(zero1, "torch")) == pytest.approx(4 * PARAMETERS)


def test_zero_1_over_fewer_ranks_reduces_each_shard_over_its_copies():
    found = calls(Layout(data=64, shard=8, zero_stage=1), "megatron")
    inside = bytes_of("reduce_scatter", found)
    assert bytes_of("all_reduce", found, across=True) == pytest.approx(inside / 8)
    assert {call.ranks for call in found} == {8}


def test_zero_2_of_torch_gathers_once_and_under_compute():
    zero2 = Layout(data=16, shard=16, zero_stage=2)
    fsdp = Layout(data=16, shard=16, zero_stage=3)
    kept, again = calls(zero2, "torch"), calls(fsdp, "torch")
    # The root alone has nothing to run beside.
    gathered = {call.slot: call.count for call in kept if call.kind == "all_gather"}
    assert set(gathered) == {"first_forward_s", "after_s"} and gathered["after_s"] == 1
    assert bytes_of("all_gather", kept) < bytes_of("all_gather", again)
    assert bytes_of("reduce_scatter", kept) == bytes_of("reduce_scatter", again)


def test_deepspeed_of_2021_gathers_no_faster_on_a_faster_fabric():
    assert not wire_bytes("fp16-amp", "megatron", (2021, 4)).coalesced
    assert USUAL["uncoalesced_bytes_per_s"] < 25e9
    assert wire_bytes("fp16-amp", "megatron", (2023, 4)).coalesced
    assert wire_bytes("fp16-amp", "torch-eager", (2021, 4)).coalesced


def test_deepspeed_zero_3_sends_six_bytes_per_parameter():
    found = calls(Layout(data=16, shard=16, zero_stage=3), "megatron", "fp16-amp")
    assert bytes_of("reduce_scatter", found) == pytest.approx(2 * PARAMETERS)
    blocks = 700_000_000
    assert bytes_of("all_gather", found) == pytest.approx(2 * (PARAMETERS + blocks))


@pytest.mark.parametrize(
    ("stack", "date", "features", "parts"),
    [
        ("megatron", (2021, 1), set(), 1),
        ("megatron", (2021, 4), set(), 8),
        ("megatron", (2023, 1), set(), 8),
        ("megatron", (2023, 2), set(), 1),
        ("megatron", None, set(), 1),
        ("megatron", (2024, 1), {"scattered-sends"}, 8),
        ("torch-eager", (2022, 1), set(), 1),
    ],
)
def test_when_tensor_ranks_scatter_what_a_stage_sends(stack, date, features, parts):
    split = Layout(tensor=8, pipeline=4)
    assert sent_parts(stack, date, frozenset(features), split) == parts
    in_sequence = Layout(tensor=8, pipeline=4, sequence_parallel=True)
    assert sent_parts(stack, date, frozenset(features), in_sequence) == 1


def test_deepspeeds_engine_is_taken_to_send_whole_activations():
    sharded = Layout(data=2, shard=2, zero_stage=1, tensor=8, pipeline=4)
    assert sent_parts("megatron", (2022, 2), frozenset(), sharded) == 1
    assert sent_parts("megatron", (2022, 10), frozenset(), sharded) == 8


@pytest.mark.parametrize(
    ("stack", "features", "expected"),
    [
        ("torch-eager", set(), {"selective": 1.0}),
        ("torch-eager", {"recompute-per-layer"}, {"none": 0.5, "full": 0.5}),
        ("torch-eager", {"recompute-per-op"}, {"selective": 5 / 8, "full": 3 / 8}),
        ("xla", set(), {"selective": 2 / 3, "full": 1 / 3}),
        ("xla", {"kept-products"}, {"selective": 1.0}),
    ],
)
def test_what_selective_recompute_means(stack, features, expected):
    setup = Setup(
        layout=Layout(),
        precision="bf16-amp",
        micro_batch=1,
        recompute="selective",
        stack=stack,
        features=frozenset(features),
    )
    assert recompute_policies(setup) == expected


def test_a_recipe_may_keep_to_flash_attention_2() -> None:
    second = frozenset({"flash-attention-2"})
    assert attention_date((2025, 5), frozenset()) == (2025, 5)
    assert attention_date((2025, 5), second) == attention_date(None, second) == (2024, 1)
    assert attention_date((2023, 9), second) == (2023, 9)


def test_attention_is_torchs_own_where_nothing_says_otherwise():
    assert calls_torch_attention("torch-compile", frozenset({"deepspeed"}))
    assert not calls_torch_attention("megatron", frozenset())
    for package in ("flash-attention-package", "flash-attention-2", "transformer-engine"):
        assert not calls_torch_attention("torch-eager", frozenset({package}))
