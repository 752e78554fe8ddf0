"""Functions of torch that are written in Python: each runs once, and its operations are seen."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from gpuplan.catalog.errors import UserFileError
from gpuplan.profiles.profile import Profile
from gpuplan.profiles.trace.trace import trace_workload
from gpuplan.profiles.user_model.workload import Workload

pytestmark = pytest.mark.slow

Function = Callable[[torch.Tensor], torch.Tensor]
SAMPLE = (2, 8, 8)


class Calls(nn.Module):
    """Makes images, hands them to a function, and reduces what it returns."""

    def __init__(self, function: Function) -> None:
        super().__init__()
        self.layer = nn.Conv2d(SAMPLE[0], SAMPLE[0], 1)
        self.function = function

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        images = self.layer(images)
        return self.function(images).float().mean() + images.mean()


def profile_of(function: Function) -> Profile:
    workload = Workload(
        name="calls",
        path=Path(__file__),
        build_model=lambda: Calls(function),
        make_batch=lambda size: (torch.randn(size, *SAMPLE),),
        compute_loss=lambda model, batch: model(*batch),
        build_optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    )
    return trace_workload(workload)


def operations(profile: Profile) -> list[str]:
    step = profile.step("fp32")
    return [kernel.op.split(".")[0] for at in step.schedule for kernel in step.segments[at].kernels]


FUNCTIONS: dict[str, Function] = {
    "meshgrid": lambda x: torch.stack(torch.meshgrid(x[0, 0, 0], x[0, 0, 1])),
    "meshgrid ij": lambda x: torch.stack(torch.meshgrid(x[0, 0, 0], x[0, 0, 1], indexing="ij")),
    "meshgrid xy": lambda x: torch.stack(torch.meshgrid([x[0, 0, 0], x[0, 1, 1]], indexing="xy")),
    "cartesian_prod": lambda x: torch.cartesian_prod(x[0, 0, 0], x[0, 0, 1]),
    "broadcast_tensors": lambda x: torch.broadcast_tensors(x, x[:1])[1],
    "tensordot": lambda x: torch.tensordot(x, x[0, 0], dims=1),
    "einsum": lambda x: torch.einsum("bchw,bchv->bcwv", x, x),
    "norm": lambda x: torch.norm(x, dim=-1),
    "cdist": lambda x: torch.cdist(x, x),
    "split": lambda x: torch.split(x, 4, dim=-1)[0],
    "stft": lambda x: torch.stft(x.flatten(1), 16, return_complex=True).abs(),
    "max_pool1d": lambda x: F.max_pool1d(x.flatten(2), 2),
    "max_pool1d with indices": lambda x: F.max_pool1d(x.flatten(2), 2, return_indices=True)[0],
    "max_pool2d": lambda x: F.max_pool2d(x, 2),
    "max_pool2d with indices": lambda x: F.max_pool2d(x, 2, return_indices=True)[0],
    "max_pool3d with indices": lambda x: F.max_pool3d(x, 2, return_indices=True)[0],
    "max_unpool2d": lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), [2, 2]),
    "adaptive_max_pool1d": lambda x: F.adaptive_max_pool1d(x.flatten(2), 2),
    "adaptive_max_pool2d": lambda x: F.adaptive_max_pool2d(x, 2, return_indices=True)[0],
    "adaptive_max_pool3d": lambda x: F.adaptive_max_pool3d(x, 2, return_indices=True)[0],
    "fractional_max_pool2d": lambda x: F.fractional_max_pool2d(x, 2, output_size=4),
    "fractional with indices": lambda x: F.fractional_max_pool2d(
        x, 2, output_size=4, return_indices=True
    )[0],
    "interpolate": lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"),
    "threshold": lambda x: F.threshold(x, 0.1, 0.0),
    "gumbel_softmax": lambda x: F.gumbel_softmax(x, hard=True),
    "affine_grid": lambda x: F.grid_sample(
        x, F.affine_grid(x[:, 0, :2, :3], list(x.shape), False), align_corners=False
    ),
    "lu": lambda x: torch.linalg.lu_factor(x)[0],
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_that_torch_writes_in_python_is_traced(name: str) -> None:
    profile = profile_of(FUNCTIONS[name])
    assert "convolution" in operations(profile)
    assert profile.numerics() == ("fp32", "amp16")


def test_a_grid_costs_what_its_tables_do() -> None:
    """`torch.meshgrid` gives views: the copy that stacks them is all that runs."""
    grid = profile_of(lambda x: FUNCTIONS["meshgrid ij"](x.detach()))

    def grid_by_hand(x: torch.Tensor) -> torch.Tensor:
        rows, columns = x[0, 0].detach()[:2]
        return torch.stack([rows.view(8, 1).expand(8, 8), columns.view(1, 8).expand(8, 8)])

    by_hand = profile_of(grid_by_hand)
    assert operations(grid) == operations(by_hand)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.unique(x),
        lambda x: torch.unique(x, return_inverse=True)[1],
        lambda x: torch.unique_consecutive(x, return_counts=True)[0],
    ],
)
def test_unique_values_are_refused_with_the_line_of_the_call(function: Function) -> None:
    with pytest.raises(UserFileError, match="needs the values of a tensor") as error:
        profile_of(function)
    assert f"{Path(__file__).name}:{function.__code__.co_firstlineno}" in error.value.message


class CopiesIntoBuffer(nn.Module):
    """Fills a buffer from values that were made on the device of a large weight, as timm does."""

    table: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 256)
        self.register_buffer("table", torch.empty(64), persistent=False)
        self.register_buffer("scale", torch.ones(4))
        self.table.copy_(torch.arange(64, device=self.layer.weight.device))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x * self.table).mean()


def _buffer_workload(build: Callable[[], nn.Module]) -> Workload:
    return Workload(
        name="buffer",
        path=Path(__file__),
        build_model=build,
        make_batch=lambda size: (torch.randn(size, 64),),
        compute_loss=lambda model, batch: model(*batch),
        build_optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    )


def test_a_buffer_may_take_values_of_the_device() -> None:
    profile = trace_workload(_buffer_workload(CopiesIntoBuffer), numerics=["fp32"])
    assert profile.parameters == 64 * 256 + 256


def test_values_of_the_device_are_unknown_in_a_buffer_too() -> None:
    def build() -> nn.Module:
        model = CopiesIntoBuffer()
        model.layer = nn.Linear(int(model.table[3]), 256)
        return model

    with pytest.raises(UserFileError, match="needs the values of a tensor"):
        trace_workload(_buffer_workload(build), numerics=["fp32"])


STEPS, LABELS = 64, 5


def ctc_loss(x: torch.Tensor, lengths: str) -> torch.Tensor:
    """Return the loss of 64 steps with 2 classes each against 5 labels a sample."""
    probabilities = x.flatten(2).permute(2, 0, 1).log_softmax(-1)
    samples = x.shape[0]
    targets = torch.ones(samples, LABELS, dtype=torch.long, device=x.device)
    if lengths == "listed":
        steps, labels = (STEPS,) * samples, (LABELS,) * samples
        return F.ctc_loss(probabilities, targets, steps, labels)  # pyright: ignore[reportArgumentType]
    if lengths == "targets in one row":
        targets = targets.flatten()
    steps = torch.full((samples,), STEPS, device=x.device)
    labels = torch.full((samples,), LABELS, device=x.device)
    return F.ctc_loss(probabilities, targets, steps, labels, zero_infinity=True)


@pytest.mark.parametrize("lengths", ["in tensors", "listed", "targets in one row"])
def test_the_loss_of_speech_keeps_two_states_a_label(lengths: str) -> None:
    profile = profile_of(lambda x: ctc_loss(x, lengths))
    assert {"_ctc_loss", "_ctc_loss_backward"} <= set(operations(profile))
    step = profile.step("fp32")
    (kernel,) = [
        one for at in step.schedule for one in step.segments[at].kernels if one.op == "_ctc_loss"
    ]
    probabilities = torch.zeros(STEPS, 1, 2).log_softmax(-1)
    out = torch.ops.aten._ctc_loss(probabilities, torch.ones(1, LABELS).long(), [STEPS], [LABELS])
    assert kernel.bytes_written.per_sample == sum(one.numel() for one in out) * 4


# --- masks of attention -----------------------------------------------------------------------


class Attends(nn.Module):
    def __init__(self, kv_heads: int, *, mask: bool, learnt: bool = False) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.kv_heads, self.has_mask = kv_heads, mask
        self.bias = nn.Parameter(torch.zeros(12, 12)) if learnt else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q = self.layer(x).view(-1, 12, 4, 8).transpose(1, 2)
        k = q[:, : self.kv_heads]
        band = torch.ones(12, 12, dtype=torch.bool, device=x.device).tril()
        mask = self.bias if self.bias is not None else band if self.has_mask else None
        return F.scaled_dot_product_attention(q, k, k, attn_mask=mask, enable_gqa=True).sum()


class OverPixels(nn.Module):
    """Attention whose tokens are the pixels of an image, its channels first."""

    def __init__(self, *, in_rows: bool, heads: bool = True) -> None:
        super().__init__()
        self.layer = nn.Conv2d(12, 24, 1)
        self.in_rows, self.heads = in_rows, heads

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = self.layer(x).flatten(2).transpose(1, 2)
        tokens = tokens.unsqueeze(1) if self.heads else tokens
        q, k, v = (tokens.contiguous() if self.in_rows else tokens).chunk(3, dim=-1)
        return F.scaled_dot_product_attention(q, k, v).sum()


def traced(model: nn.Module, numerics: str) -> Profile:
    workload = Workload(
        name="attends",
        path=Path(__file__),
        build_model=lambda: model,
        make_batch=lambda size: (torch.randn(size, 12, 4, 8),),
        compute_loss=lambda model, batch: model(*batch),
        build_optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    )
    return trace_workload(workload, numerics=[numerics])  # pyright: ignore[reportArgumentType]


def notes_of_attention(model: nn.Module, numerics: str) -> list[str]:
    notes = traced(model, numerics).notes
    return [note for note in notes if "flash kernel" in note or "fused kernels" in note]


@pytest.mark.parametrize(
    ("model", "instead"),
    [
        (Attends(4, mask=True), "what runs instead is slower, and reads it"),
        (Attends(2, mask=True), "what runs instead writes every score to memory"),
        (Attends(4, mask=True, learnt=True), "what runs instead writes every score to memory"),
    ],
)
def test_a_mask_that_rules_out_flash_attention_is_said_with_its_line(
    model: nn.Module, instead: str
) -> None:
    line = Attends.forward.__code__.co_firstlineno + 5
    (note,) = notes_of_attention(model, "amp16")
    assert note.startswith(f"test_torch_functions.py:{line}, in forward gives attention a mask")
    assert instead in note
    assert "is_causal=True" in note
    assert "torch.nn.attention.flex_attention" in note


def test_attention_that_has_no_flash_kernel_to_lose_says_nothing() -> None:
    assert notes_of_attention(Attends(4, mask=False), "amp16") == []
    assert notes_of_attention(Attends(4, mask=True), "fp32") == []
    assert notes_of_attention(OverPixels(in_rows=False, heads=False), "amp16") == []


@pytest.mark.parametrize("numerics", ["fp32", "amp16"])
def test_attention_over_transposed_tensors_has_no_fused_kernel_and_that_is_said(
    numerics: str,
) -> None:
    """Every fused kernel refuses them (`check_last_dim_stride_equals_1_dense`)."""
    strided = traced(OverPixels(in_rows=False), numerics)
    kinds = {kernel.kind for segment in strided.steps[0].segments for kernel in segment.kernels}
    assert "attention" not in kinds and "softmax" in kinds
    (note,) = notes_of_attention(OverPixels(in_rows=False), numerics)
    line = OverPixels.forward.__code__.co_firstlineno + 4
    assert note.startswith(f"test_torch_functions.py:{line}, in forward gives attention a tensor")
    in_rows = traced(OverPixels(in_rows=True), numerics)
    kinds = {kernel.kind for segment in in_rows.steps[0].segments for kernel in segment.kernels}
    assert "attention" in kinds and "softmax" not in kinds
    assert notes_of_attention(OverPixels(in_rows=True), numerics) == []


# --- autocast ---------------------------------------------------------------------------------


class Enlarges(nn.Module):
    def __init__(self, mode: str) -> None:
        super().__init__()
        self.layer, self.mode = nn.Conv2d(12, 12, 1), mode

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(F.interpolate(self.layer(x), scale_factor=2, mode=self.mode)).sum()


@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
def test_autocast_enlarges_images_in_fp32(mode: str) -> None:
    """`upsample_*` are on CUDA's list of what runs in fp32 (aten/src/ATen/autocast_mode.h)."""
    segments = traced(Enlarges(mode), "amp16").steps[0].segments
    kernels = [kernel for segment in segments for kernel in segment.kernels]
    assert {one.dtype for one in kernels if one.op == f"upsample_{mode}2d"} == {"fp32"}
    assert {one.dtype for one in kernels if one.kind == "convolution"} == {"16bit"}
