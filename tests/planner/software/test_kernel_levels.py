"""Kernels in a step relative to their micro-benchmarks, by device, stack and date."""

import pytest

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.planner.constants import Constants
from gpuplan.planner.software.kernel_levels import (
    attention_architecture,
    attention_of_torch,
    attention_slowdown,
    in_step,
)
from gpuplan.profiles.profile import KernelKind

USUAL = Constants.shipped()


def test_attention_is_never_slower_on_newer_software():
    dates = [(2022, 6), (2023, 10), (2024, 8), (2025, 6), None]
    for architecture in ("Ampere", "Hopper", "Volta"):
        slowdowns = [attention_slowdown(architecture, "megatron", date, USUAL) for date in dates]
        assert slowdowns == sorted(slowdowns, reverse=True)
        tuned = USUAL.get(f"attention_tuned.{architecture}", USUAL["attention_step"])
        assert slowdowns[-2] == tuned
        assert slowdowns[-1] == USUAL.get(f"attention_retuned.{architecture}", tuned)


def test_attention_on_hopper_got_faster_with_cudnn_9_18():
    before = attention_slowdown("Hopper", "megatron", (2025, 12), USUAL)
    assert attention_slowdown("Hopper", "megatron", (2026, 1), USUAL) < 0.95 * before
    on_blackwell = [
        attention_slowdown("Blackwell", "megatron", (2025 + y, 6), USUAL) for y in (0, 1)
    ]
    assert on_blackwell[0] == on_blackwell[1]


def test_torch_attention_stayed_with_the_second_generation_until_cudnn_came_first():
    newest = attention_slowdown("Hopper", "megatron", None, USUAL)
    assert attention_slowdown("Hopper", "torch-eager", (2026, 1), USUAL) > 1.5 * newest
    assert attention_slowdown("Hopper", "torch-eager", None, USUAL) == newest
    on_ampere = attention_slowdown("Ampere", "megatron", None, USUAL)
    assert attention_slowdown("Ampere", "torch-eager", None, USUAL) == on_ampere


def test_attention_of_xla_is_cudnns_whatever_its_date():
    newest = attention_slowdown("Hopper", "megatron", (2024, 7), USUAL)
    assert attention_slowdown("Hopper", "xla", (2024, 6), USUAL) == newest
    assert attention_slowdown("Hopper", "megatron", (2024, 6), USUAL) > 1.5 * newest


def test_the_second_generation_is_far_behind_on_blackwell():
    newest = attention_slowdown("Blackwell", "megatron", None, USUAL)
    assert attention_slowdown("Blackwell", "torch-eager", (2026, 1), USUAL) > 2 * newest
    assert attention_slowdown("Blackwell", "torch-compile", None, USUAL) == newest
    # Compute capability 10.3 is not among those where torch takes cuDNN first.
    assert attention_slowdown("Blackwell Ultra", "torch-eager", None, USUAL) > 2 * newest
    own = attention_slowdown("Blackwell Ultra", "torch-eager", None, USUAL, own_package=True)
    assert own == newest


def test_torch_has_faster_attention_than_it_calls_on_blackwell_ultra_alone():
    devices = load_catalogue().accelerators
    older = {name for name, one in devices.items() if attention_of_torch(one, "torch-eager")}
    assert older == {"B300", "GB300"}
    assert not attention_of_torch(devices["B300"], "megatron")


def test_cards_run_the_kernels_that_were_measured_on_them():
    devices = load_catalogue().accelerators
    card = attention_architecture(devices["RTX-PRO-6000"])
    assert card != attention_architecture(devices["B200-180GB-SXM"]) == "Blackwell"
    assert attention_architecture(devices["L40S"]) == "Ada"
    for date in ((2026, 1), None):
        assert attention_slowdown(card, "torch-eager", date, USUAL) == USUAL["attention_step"]


def test_narrow_heads_lag_less_behind_the_kernels_of_today():
    def lag(head_dim: int) -> float:
        found = attention_slowdown("Hopper", "torch-eager", (2026, 1), USUAL, head_dim=head_dim)
        return float(found) / USUAL["attention_step"]

    assert 1 < lag(64) < lag(128) == USUAL["flash_2.Hopper"] < lag(256)


def test_kernels_of_a_step_are_slower_than_alone_but_never_by_much_on_measured_families():
    devices = load_catalogue().accelerators
    for name in ("A100-80GB-SXM", "H100-80GB-SXM", "L4"):
        device = devices[name]
        assert 1.0 < in_step(device, "gemm", USUAL, precision="bf16-amp", stack="torch-eager") < 1.2
        assert (
            0.8
            < in_step(device, "pointwise", USUAL, precision="bf16-amp", stack="torch-eager")
            < 1.4
        )
        assert 0.8 < in_step(device, "gemm", USUAL, precision="fp32", stack="torch-eager") < 1.25
    assert 0.8 < in_step(devices["TPU-v5e"], "gemm", USUAL, precision="bf16-amp", stack="xla") < 1.2


def test_products_are_slower_in_a_step_on_gaudi_too():
    devices = load_catalogue().accelerators
    second, third = (
        in_step(devices[name], "gemm", USUAL, precision="bf16-amp", stack="torch-eager")
        for name in ("Gaudi2", "Gaudi3")
    )
    assert second == third > 1


def test_cards_with_a_large_cache_have_streams_of_their_own():
    devices = load_catalogue().accelerators

    def of(name: str, kind: KernelKind) -> float:
        return in_step(devices[name], kind, USUAL, precision="fp16-amp", stack="torch-eager")

    assert of("RTX-3090", "pointwise") == USUAL["memory_step.GDDR"]
    for name in ("L40S", "RTX-PRO-6000"):
        assert of(name, "pointwise") == USUAL["memory_step.GDDR.cached"] < of("RTX-3090", "norm")
    for name in ("RTX-3090", "L40S"):
        assert of(name, "convolution") == of(name, "gemm") * USUAL["convolution_step.GDDR"]


def test_streams_of_megatron_on_hopper_are_not_those_of_torch():
    device = load_catalogue().accelerators["H100-80GB-SXM"]
    torch = in_step(device, "norm", USUAL, precision="bf16-amp", stack="torch-eager")
    megatron = in_step(device, "norm", USUAL, precision="bf16-amp", stack="megatron")
    assert torch == USUAL["memory_step.Hopper"]
    assert megatron == (USUAL["memory_step.Hopper.megatron"] * USUAL["fused_memory_step.megatron"])


def test_xla_fuses_more_on_tpus_than_on_gpus():
    devices = load_catalogue().accelerators

    def fused(name: str) -> float:
        today = {"precision": "bf16-amp", "stack": "xla", "date": None}
        alone = in_step(devices[name], "norm", USUAL, **{**today, "stack": "torch-eager"})
        return in_step(devices[name], "norm", USUAL, **today) / alone

    for name in ("TPU-v4", "TPU-v6e"):
        assert fused(name) == pytest.approx(USUAL["fused_memory_step.xla"])
    assert fused("A100-80GB-SXM") == pytest.approx(USUAL["fused_memory_step.xla.GPU"])
    assert fused("TPU-v6e") < fused("A100-80GB-SXM")


def test_attention_of_tpus_has_a_level_of_its_own():
    assert attention_architecture(load_catalogue().accelerators["TPU-v5p"]) == "TPU"
    own = attention_slowdown("TPU", "xla", (2025, 1), USUAL)
    assert own == USUAL["attention_step.TPU"] != USUAL["attention_step"]


def test_kernels_of_torch_before_1_10_read_an_element_at_a_time():
    device = load_catalogue().accelerators["V100-32GB-SXM2"]

    def of(date: tuple[int, int], kind: KernelKind = "norm") -> float:
        return in_step(device, kind, USUAL, precision="fp32", stack="torch-eager", date=date)

    assert of((2021, 9)) == pytest.approx(of((2021, 10)) * USUAL["memory_step_of_old"])
    assert of((2021, 9), "gemm") == of((2021, 10), "gemm")


def test_few_tokens_of_narrow_heads_gain_little_from_newer_kernels():
    def lag(head_dim: int, tokens: float) -> float:
        found = attention_slowdown(
            "Hopper", "torch-eager", (2026, 1), USUAL, head_dim=head_dim, tokens=tokens
        )
        return float(found) / USUAL["attention_step"] - 1

    assert lag(64, 1024) == pytest.approx(0.5 * lag(64, 1e9), rel=1e-5)
    assert lag(64, 512) < lag(64, 2048) < lag(64, 1e9)
    assert lag(128, 512) == lag(128, 8192) and lag(256, 512) == lag(256, 8192)
    newest = attention_slowdown("Hopper", "megatron", None, USUAL, head_dim=64, tokens=512)
    assert newest == attention_slowdown("Hopper", "megatron", None, USUAL)
