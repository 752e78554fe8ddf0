"""What a trace says of a model: its counts, precisions and memory."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from traced_mlp import WIDTH, Mlp, kernels, workload

from gpuplan.profiles.analysis.replay import replay
from gpuplan.profiles.profile import CATEGORIES, Affine, Profile, StepTrace
from gpuplan.profiles.trace.trace import trace_workload
from gpuplan.profiles.user_model.workload import Workload

pytestmark = pytest.mark.slow


# --- counts and closed formulas ------------------------------------------------------------------


def test_gpt2_equals_its_closed_formula(example_workload: Any) -> None:
    profile = trace_workload(example_workload("gpt2"))
    hidden, layers, vocab, length = 768, 12, 50257, 1024
    weights = 12 * layers * hidden**2 + vocab * hidden
    attention = 2 * length**2 * hidden * layers
    assert profile.parameters == profile.trainable_parameters == 124_439_808
    assert profile.flops == Affine(0, 6 * length * weights + 3 * attention)
    assert profile.batch_bytes == Affine(0, 2 * length * 8)
    (group,) = profile.blocks
    assert (group.name, group.count, group.attention_heads) == ("blocks", 12, 12)
    assert group.boundary_bytes == Affine(0, length * hidden * 4)
    assert [linear.out_features for linear in group.linears] == [2304, 768, 3072, 768]
    assert profile.optimizer.name == "adamw"
    assert profile.optimizer.state_bytes_per_parameter == 8
    assert profile.optimizer.temporary_bytes_per_parameter == pytest.approx(4, rel=1e-3)


def test_llama3_8b_equals_its_closed_formula(example_workload: Any) -> None:
    profile = trace_workload(example_workload("decoder"), numerics=["amp16"])
    hidden, layers, vocab, length = 4096, 32, 128256, 8192
    weights = profile.parameters - vocab * hidden - hidden * (2 * layers + 1)
    attention = 2 * length**2 * hidden * layers
    assert profile.parameters == 8_030_261_248
    assert profile.flops.per_sample == pytest.approx(6 * length * weights + 3 * attention, rel=1e-3)
    assert (profile.blocks[0].attention_heads, profile.blocks[0].attention_kv_heads) == (32, 8)


@pytest.mark.parametrize("weight_format", [torch.channels_last, torch.contiguous_format])
def test_a_weight_in_channels_last_decides_and_a_plain_input_is_copied(
    weight_format: torch.memory_format,
) -> None:
    def convolution() -> nn.Module:
        layer: Any = nn.Conv2d(16, 32, 3, padding=1)
        return layer.to(memory_format=weight_format)

    profile = trace_workload(
        workload(
            build_model=convolution,
            make_batch=lambda size: torch.randn(size, 16, 8, 8),
            compute_loss=lambda model, batch: model(batch).sum(),
        )
    )
    one = next(k for k in kernels(profile.step("fp32")) if k.op.startswith("convolution."))
    image, result, weight = 16 * 8 * 8 * 4, 32 * 8 * 8 * 4, 32 * 16 * 9 * 4
    moved = one.bytes_read.at(1) + one.bytes_written.at(1) - image - result - weight
    is_last = weight_format is torch.channels_last
    assert one.op == f"convolution.{'channels_last' if is_last else 'contiguous'}"
    # The input is read and written once more; the bias is what is left.
    assert moved - (2 * image if is_last else 0) == pytest.approx(0, abs=256)


def test_mixtral_equals_its_closed_formula(example_workload: Any) -> None:
    hidden, layers, ffn, vocab, length = 4096, 32, 14336, 32000, 4096
    profile = trace_workload(
        example_workload(
            "decoder", experts=8, active_experts=2, vocab=vocab, seq_len=length, ffn=ffn
        ),
        numerics=["amp16"],
    )
    per_layer = hidden * (hidden * 2 + 2 * 1024) + 8 * hidden + 2 * 3 * hidden * ffn
    attention = 2 * length**2 * hidden * layers
    expected = 6 * length * (layers * per_layer + vocab * hidden) + 3 * attention
    assert profile.flops.per_sample == pytest.approx(expected, rel=0.01)


def test_resnet50_counts(example_workload: Any) -> None:
    profile = trace_workload(example_workload("resnet50"))
    forward = sum(k.flops.at(1) for k in kernels(profile.step("fp32"), "forward"))
    assert profile.parameters == 25_557_032
    assert forward == pytest.approx(2 * 4.089e9, rel=0.001)
    convolutions = [k for k in kernels(profile.step("fp32")) if k.kind == "convolution"]
    assert {k.op.split(".")[1] for k in convolutions} == {"channels_last"}
    assert sum(not k.backward for k in convolutions) == 53
    # The images need no gradient: the first convolution has one backward product, not two.
    assert sum(k.flops.at(1) for k in convolutions if k.backward) == pytest.approx(
        2 * sum(k.flops.at(1) for k in convolutions if not k.backward)
        - next(k.flops.at(1) for k in convolutions)
    )


@pytest.mark.parametrize(
    ("build", "shape", "dims"),
    [
        (lambda: nn.Conv1d(8, 8, 5, stride=2, padding=2), (64,), (5, 5, 2, 1)),
        (lambda: nn.Conv2d(8, 8, 3, dilation=2), (16, 16), (9, 3, 1, 4)),
        (lambda: nn.Conv2d(8, 8, (1, 7)), (16, 16), (7, 7, 1, 1)),
        (lambda: nn.Conv3d(8, 8, 3, stride=(1, 2, 2)), (8, 8, 8), (27, 3, 4, 1)),
        (lambda: nn.ConvTranspose2d(8, 8, 2, stride=2), (8, 8), (4, 2, 4, 1)),
    ],
)
def test_filters_of_a_convolution(
    build: Callable[[], nn.Module], shape: tuple[int, ...], dims: tuple[int, ...]
) -> None:
    profile = trace_workload(
        workload(
            build_model=build,
            make_batch=lambda batch_size: (torch.randn(batch_size, 8, *shape),),
            compute_loss=lambda model, batch: model(*batch).sum(),
        ),
        numerics=["fp32"],
    )
    names = ("kernel_elements", "filter_side", "stride", "dilation")
    found = [k.dims for k in kernels(profile.step("fp32")) if k.kind == "convolution"]
    assert {tuple(int(one[name].at(1)) for name in names) for one in found} == {dims}
    assert len(found) == 2, "forward and backward"


def test_gemm_dims_of_a_linear_layer() -> None:
    step = trace_workload(workload(), numerics=["fp32"]).steps[0]
    gemms = [k for k in kernels(step) if k.kind == "gemm"]
    dims = [tuple((k.dims[name].base, k.dims[name].per_sample) for name in "mnk") for k in gemms]
    rows, wide, four = (0, 1), (WIDTH, 0), (4, 0)
    assert dims == [
        (rows, wide, wide),
        (rows, four, wide),
        (rows, wide, four),
        (four, wide, rows),
        (wide, wide, rows),
    ]
    assert all(k.linear for k in gemms)
    assert [k.module for k in gemms] == ["layer", "head", "head", "head", "layer"]
    forward = gemms[0]
    assert forward.flops == Affine(0, 2 * WIDTH * WIDTH)
    assert forward.bytes_read == Affine(4 * (WIDTH + WIDTH * WIDTH), 4 * WIDTH)
    assert forward.bytes_written == Affine(0, 4 * WIDTH)


def test_embedding_reads_its_rows_and_not_its_table() -> None:
    def build_model() -> nn.Module:
        return nn.Sequential(nn.Embedding(10_000, WIDTH), nn.Flatten(), nn.Linear(3 * WIDTH, 4))

    profile = trace_workload(
        workload(
            build_model=build_model,
            make_batch=lambda size: (torch.randint(9, (size, 3)), torch.randint(4, (size,))),
        ),
        numerics=["fp32"],
    )
    gather = next(k for k in kernels(profile.steps[0]) if k.op == "embedding")
    assert gather.bytes_read == Affine(0, 3 * 8 + 3 * WIDTH * 4)


# --- precisions --------------------------------------------------------------------------------


def test_each_numerics_class_has_its_dtypes(example_workload: Any) -> None:
    profile = trace_workload(
        example_workload("gpt2", layers=2, seq_len=128), numerics=["fp32", "amp16", "pure16"]
    )
    attention = {
        step.numerics: next(k.op for k in kernels(step) if k.kind == "attention")
        for step in profile.steps
    }
    assert attention == {
        "fp32": "_scaled_dot_product_efficient_attention",
        "amp16": "_scaled_dot_product_flash_attention",
        "pure16": "_scaled_dot_product_flash_attention",
    }
    for step, bytes_each in zip(profile.steps, (4, 4, 2), strict=True):
        held = _bytes_of(step, "parameters")
        assert held == profile.parameters * bytes_each
        assert _bytes_of(step, "optimizer") == 2 * held
        assert _bytes_of(step, "gradients") == held
    gemms = {s.numerics: {k.dtype for k in kernels(s) if k.kind == "gemm"} for s in profile.steps}
    assert gemms == {"fp32": {"fp32"}, "amp16": {"16bit"}, "pure16": {"16bit"}}
    norms = {k.dtype for k in kernels(profile.step("amp16")) if k.kind == "norm"}
    assert norms == {"fp32"}


def draw_noise(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Return what a layer makes of fp32 noise, as a GAN does: autocast casts it."""
    assert isinstance(model, Mlp)
    return x + model.layer(torch.randn(x.shape[0], WIDTH))


def filter_noise(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    assert isinstance(model, Mlp)
    kernel = model.layer.weight[None, None, :3, :3]
    return x + F.conv2d(torch.randn(x.shape[0], 1, 4 * WIDTH, WIDTH), kernel, padding=1).mean()


@pytest.mark.parametrize("make", [draw_noise, filter_noise])
def test_a_product_of_two_dtypes_is_refused_as_on_a_gpu(make: Any) -> None:
    """On meta tensors torch multiplies them; small noise is on the host, larger is not."""
    own = workload(build_model=lambda: Mlp(make))
    profile = trace_workload(own, numerics=["amp16"])
    assert {k.dtype for k in kernels(profile.step("amp16")) if k.kind == "gemm"} == {"16bit"}
    with pytest.raises(RuntimeError, match="one dtype, but got float32 and bfloat16"):
        trace_workload(own, numerics=["pure16"])


def test_a_batch_in_the_float64_of_numpy_is_refused() -> None:
    def make_batch(size: int) -> Any:
        return torch.from_numpy(np.zeros((size, WIDTH))), torch.randint(4, (size,))

    with pytest.raises(RuntimeError, match="one dtype, but got float64 and float32"):
        trace_workload(workload(make_batch=make_batch), numerics=["fp32"])


def test_autocast_of_the_file_is_noted_and_taken() -> None:
    def compute_loss(model: nn.Module, batch: Any) -> torch.Tensor:
        with torch.autocast("cuda", torch.float16):
            logits = model(batch[0])
        return F.cross_entropy(logits.float(), batch[1])

    profile = trace_workload(workload(compute_loss=compute_loss))
    assert profile.file_precision == "fp16-amp"
    assert {k.dtype for k in kernels(profile.step("fp32")) if k.kind == "gemm"} == {"fp32"}
    assert {k.dtype for k in kernels(profile.step("amp16")) if k.kind == "gemm"} == {"16bit"}


def test_cuda_calls_and_compile_do_not_break_a_trace() -> None:
    def build_model() -> nn.Module:
        assert torch.cuda.is_available()
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        return torch.compile(Mlp().to(device).cuda())  # pyright: ignore[reportReturnType]

    def compute_loss(model: nn.Module, batch: Any) -> torch.Tensor:
        x = batch[0].cuda(non_blocking=True)
        assert x.device.type == "cuda" and x.is_cuda
        x = x + torch.zeros(WIDTH, device="cuda") + torch.ones(WIDTH).to("cuda")
        return F.cross_entropy(model(x), batch[1].to("cuda:0"))

    plain = trace_workload(workload(), numerics=["fp32"])
    profile = trace_workload(
        workload(build_model=build_model, compute_loss=compute_loss), numerics=["fp32"]
    )
    assert profile.file_compiles and not plain.file_compiles
    assert profile.flops == plain.flops


def test_norms_whose_statistics_are_those_of_all_ranks() -> None:
    def build_model() -> nn.Module:
        norms = nn.BatchNorm1d(WIDTH), nn.BatchNorm1d(4)
        model = nn.Sequential(nn.Linear(WIDTH, WIDTH), norms[0], nn.Linear(WIDTH, 4), norms[1])
        return nn.SyncBatchNorm.convert_sync_batchnorm(model)

    profile = trace_workload(workload(build_model=build_model), numerics=["fp32"])
    assert profile.synced_norms == (WIDTH, 4)
    assert trace_workload(workload(), numerics=["fp32"]).synced_norms == ()


@pytest.mark.parametrize(
    ("returned", "expected"), [("loss", False), ("both", True), ("detached", False)]
)
def test_whether_the_model_returns_the_logits_of_its_loss(returned: str, expected: bool) -> None:
    class WithLoss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mlp = Mlp()

        def forward(self, x: torch.Tensor) -> dict[str, Any]:
            scores = self.mlp(x)
            loss = F.cross_entropy(scores, x.argmax(1))
            beside = {"loss": None, "both": scores, "detached": scores.detach()}[returned]
            return {"loss": loss, "logits": beside}

    def compute_loss(model: nn.Module, batch: Any) -> torch.Tensor:
        return model(batch[0])["loss"]

    profile = trace_workload(workload(build_model=WithLoss, compute_loss=compute_loss))
    assert profile.loss_in_model and profile.returns_logits is expected


@pytest.mark.parametrize("inside", [True, False])
def test_where_the_cross_entropy_is_computed(inside: bool) -> None:
    class WithLoss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mlp = Mlp()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            scores = self.mlp(x)
            return F.cross_entropy(scores, x.argmax(1)) if inside else scores

    criterion = nn.CrossEntropyLoss()

    def compute_loss(model: nn.Module, batch: Any) -> torch.Tensor:
        found = model(batch[0])
        return found if inside else criterion(found, batch[0].argmax(1))

    profile = trace_workload(workload(build_model=WithLoss, compute_loss=compute_loss))
    assert profile.loss_in_model is inside

    def compute_both(model: nn.Module, batch: Any) -> torch.Tensor:
        return compute_loss(model, batch) + criterion(batch[0], batch[0].argmax(1))

    both = trace_workload(workload(build_model=WithLoss, compute_loss=compute_both))
    assert not both.loss_in_model


def test_products_of_samples_with_samples_are_noted() -> None:
    def compute_loss(model: nn.Module, batch: Any) -> torch.Tensor:
        embedded = model(batch[0])
        return (embedded @ embedded.T).logsumexp(-1).sum()

    profile = trace_workload(workload(compute_loss=compute_loss))
    assert profile.mixes_samples
    assert "grow with the square of the micro-batch" in profile.notes[0]
    plain = trace_workload(workload())
    assert (plain.notes, plain.mixes_samples) == ((), False)


def test_a_batch_norm_is_ordinary_practice_and_noted_nowhere() -> None:
    def build_model() -> nn.Module:
        return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.Linear(WIDTH, 4))

    profile = trace_workload(workload(build_model=build_model), numerics=["fp32"])
    assert (profile.notes, profile.mixes_samples) == ((), False)


# --- memory ------------------------------------------------------------------------------------


def test_frozen_parameters_have_no_gradient_state_or_weight_product(example_workload: Any) -> None:
    full = trace_workload(_three_layers(frozen=False), numerics=["fp32"])
    part = trace_workload(_three_layers(frozen=True), numerics=["fp32"])
    assert part.parameters == full.parameters
    assert part.trainable_parameters == full.trainable_parameters - (WIDTH * WIDTH + WIDTH)
    assert _bytes_of(part.steps[0], "gradients") == 4 * part.trainable_parameters
    products = [
        len([k for k in kernels(profile.steps[0]) if k.kind == "gemm"]) for profile in (full, part)
    ]
    assert products == [8, 7]
    lora = trace_workload(example_workload("lora", layers=2, vocab=1000, seq_len=256))
    assert lora.trainable_parameters < 0.05 * lora.parameters
    for step in lora.steps:
        assert _bytes_of(step, "gradients") == 4 * lora.trainable_parameters


def test_more_samples_never_need_less_memory(example_workload: Any) -> None:
    profile = trace_workload(example_workload("unet_diffusion"), numerics=["fp32"])
    peaks = [replay(profile.steps[0], size).peak_allocated_bytes for size in (1, 2, 4, 8, 16)]
    # The allocator counts large blocks whole when their rests are not worth splitting off.
    assert all(more > 0.98 * less for less, more in zip(peaks, peaks[1:], strict=False))


def test_profile_survives_json(example_workload: Any) -> None:
    profile = trace_workload(example_workload("gpt2", layers=2, seq_len=64))
    assert Profile.model_validate_json(profile.model_dump_json()) == profile


def test_segments_of_equal_blocks_are_stored_once(example_workload: Any) -> None:
    step = trace_workload(example_workload("gpt2", layers=6, seq_len=64), numerics=["fp32"]).steps[
        0
    ]
    blocks = [n for n in step.schedule if step.segments[n].block == "blocks"]
    assert len(blocks) == 12
    assert len(set(blocks)) <= 4
    phases = [step.segments[n].phase for n in step.schedule]
    assert phases == sorted(phases, key=("forward", "backward", "optimizer").index)


@pytest.mark.parametrize(
    "example",
    ["bert", "vit", "unet_diffusion", "unet3d_medical", "lstm", "dlrm", "gnn"],
)
def test_examples_trace_in_both_precisions(example: str, example_workload: Any) -> None:
    profile = trace_workload(example_workload(example))
    assert profile.flops.per_sample > 0
    for step in profile.steps:
        small, large = replay(step, 1), replay(step, 8)
        assert 0 < small.peak_allocated_bytes <= large.peak_allocated_bytes
        assert small.peak_reserved_bytes >= small.peak_allocated_bytes


def test_an_lstm_is_one_kernel_per_pass(example_workload: Any) -> None:
    step = trace_workload(example_workload("lstm"), numerics=["fp32"]).steps[0]
    rnns = [k for k in kernels(step) if k.kind == "rnn"]
    # 2 layers, 4 gates, input and recurrent matrices of 1500 x 1500, 35 steps.
    forward = 35 * 2 * (4 * 2 * 1500**2) * 2
    assert [k.flops.per_sample for k in rnns] == [forward, 2 * forward]


def _three_layers(*, frozen: bool) -> Workload:
    def build_model() -> nn.Module:
        model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 4))
        model[1].requires_grad_(not frozen)
        return model

    return workload(build_model=build_model)


def _bytes_of(step: StepTrace, category: str) -> int:
    number = CATEGORIES.index(category)  # pyright: ignore[reportArgumentType]
    return sum(
        size
        for size, each in zip(step.memory.bytes_base, step.memory.category, strict=True)
        if each == number
    )
