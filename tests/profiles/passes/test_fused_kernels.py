"""What the derived step keeps equals what torch.compile's own partitioner keeps of a block."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor.decomposition import select_decomp_table

from gpuplan.profiles.analysis.replay import replay
from gpuplan.profiles.passes.fp8_operands import with_kept_operands
from gpuplan.profiles.passes.fused_kernels import with_fused_kernels
from gpuplan.profiles.passes.recompute import recomputed
from gpuplan.profiles.profile import Profile, StepTrace
from gpuplan.profiles.trace.trace import trace_workload
from gpuplan.profiles.user_model.workload import Workload

pytestmark = pytest.mark.slow

WIDTH, LENGTH, SAMPLES = 64, 32, 4


class WrittenOutNorm(nn.Module):
    """As transformers writes Llama's: in fp32, then cast back."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.to(torch.float32)
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * wide.to(x.dtype)


class Gated(nn.Module):
    """A gated unit behind a norm that is written out."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = WrittenOutNorm()
        self.gate = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.up = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.down = nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Dropped(nn.Module):
    """Two layers around GELU as GPT-2 writes it out, and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.rise = nn.Linear(WIDTH, 4 * WIDTH)
        self.fall = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        y = self.rise(self.norm(x))
        y = 0.5 * y * (1.0 + torch.tanh(0.79788456 * (y + 0.044715 * torch.pow(y, 3.0))))
        return x + F.dropout(self.fall(y), 0.1)


class Attending(nn.Module):
    """torch's attention, two residual sums."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.rise = nn.Linear(WIDTH, 4 * WIDTH)
        self.fall = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        heads = self.qkv(self.norms[0](x)).unflatten(-1, (3, 4, -1)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(*heads.unbind(), is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.fall(F.gelu(self.rise(self.norms[1](x))))


class Branching(nn.Module):
    """Dropout of a branch whose sum the next norm reads, and ReLU squared of a named result."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.mix = nn.Linear(WIDTH, WIDTH)
        self.rise = nn.Linear(WIDTH, 4 * WIDTH)
        self.fall = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        x = x + F.dropout(self.mix(self.norms[0](x)), 0.1)
        inner = self.rise(self.norms[1](x))
        return x + F.dropout(self.fall(F.relu(inner).square()), 0.1)


BLOCKS = (Gated, Dropped, Attending, Branching)
SAVINGS = {Gated: 0.3, Dropped: 0.5, Attending: 0.0, Branching: 0.0}
"""Least part of what op-by-op execution keeps that fused kernels do not."""


@torch._dynamo.allow_in_graph
class InEightBits(torch.autograd.Function):
    """A layer's product as torchao's float8 training runs it: both operands cast in every pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return multiplied(x.reshape(-1, x.shape[-1]), weight.t()).unflatten(0, x.shape[:-1])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        gradient = gradients[0].reshape(-1, weight.shape[0])
        of_input = multiplied(gradient, weight).unflatten(0, x.shape[:-1])
        return of_input, multiplied(gradient.t(), x.reshape(-1, x.shape[-1]))


def multiplied(a: Tensor, b: Tensor) -> Tensor:
    """Return the product of both in 8 bits, each with one scale: rows by columns, as on Hopper."""
    (left, left_scale), (right, right_scale) = cast(a), cast(b)
    columns = right.t().contiguous().t()
    return torch.ops.aten._scaled_mm.default(
        left.contiguous(),
        columns,
        scale_a=left_scale,
        scale_b=right_scale,
        out_dtype=torch.bfloat16,
    )


def cast(x: Tensor) -> tuple[Tensor, Tensor]:
    scale = 448.0 / x.abs().max().double().clamp(min=1e-12)
    return (x.float() * scale.float()).clamp(-448, 448).to(torch.float8_e4m3fn), (1 / scale).float()


class Layer(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        return InEightBits.apply(input, self.weight)


def in_8_bits(block: nn.Module) -> nn.Module:
    """Return a block with its linear layers in 8 bits."""
    for module in block.modules():
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear):
                layer = Layer(child.in_features, child.out_features, bias=False)
                setattr(module, name, layer)
    return block


class Stack(nn.Module):
    def __init__(self, block: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.start = nn.Linear(WIDTH, WIDTH)
        self.blocks = nn.ModuleList(block() for _ in range(4))
        self.head = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        x = self.start(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def traced(block: Callable[[], nn.Module]) -> Profile:
    workload = Workload(
        name="blocks",
        path=None,
        build_model=lambda: Stack(block),
        make_batch=lambda size: {"x": torch.randn(size, LENGTH, WIDTH)},
        compute_loss=lambda model, batch: model(dict(batch)["x"]).float().square().mean(),
        build_optimizer=lambda parameters: torch.optim.AdamW(parameters),
    )
    return trace_workload(workload, numerics=["pure16"])


def kept_bytes(step: StepTrace) -> int:
    """Return bytes per sample that outlive the forward pass of the second block."""
    memory = step.memory
    forward = [
        index
        for index, number in enumerate(step.schedule)
        if step.segments[number].phase == "forward" and step.segments[number].block
    ]
    return sum(
        size
        for size, made, death in zip(
            memory.bytes_per_sample, memory.instance, memory.death_tick, strict=True
        )
        if made == forward[1] and death > step.start_tick[forward[2]]
    )


def partitioned_bytes(block: nn.Module) -> float:
    """Return bytes per sample that the partitioner saves, weights and views of others left out."""
    saved: dict[int, int] = {}

    def forward_compiler(module: Any, _: Any) -> Any:
        nodes = list(module.graph.nodes)
        inputs = [node for node in nodes if node.op == "placeholder"]
        weights = {node for node in inputs if node.meta["val"].dim() < 3}
        for node in nodes[-1].args[0]:
            value = getattr(node, "meta", {}).get("val")
            if isinstance(value, Tensor) and node not in weights:
                base = node
                while base.op == "call_function" and is_view(base):
                    base = base.args[0]
                whole = base.meta["val"]
                saved[id(base)] = whole.numel() * whole.element_size()
        return module

    compiled = torch.compile(
        block,
        backend=aot_autograd(
            fw_compiler=forward_compiler,
            bw_compiler=lambda module, _: module,
            partition_fn=min_cut_rematerialization_partition,
            decompositions=select_decomp_table,
        ),
    )
    x = torch.randn(SAMPLES, LENGTH, WIDTH, dtype=torch.bfloat16, requires_grad=True)
    compiled(x).float().sum().backward()
    return sum(saved.values()) / SAMPLES


def is_view(node: Any) -> bool:
    views = ("view", "permute", "transpose", "alias", "split", "select", "unsqueeze", "squeeze")
    return any(name in str(node.target) for name in views)


@pytest.mark.filterwarnings("ignore:Your compiler for AOTAutograd")
@pytest.mark.parametrize("block", BLOCKS)
def test_it_keeps_what_the_partitioner_keeps(block: Callable[[], nn.Module]) -> None:
    torch._dynamo.reset()
    step = traced(block).step("pure16")
    fused = kept_bytes(with_fused_kernels(step))
    # The partitioner keeps statistics of norms in 16 bits.
    own_input = LENGTH * WIDTH * 2
    expected = partitioned_bytes(block().to(torch.bfloat16)) - own_input
    assert fused == pytest.approx(expected, rel=0.03)
    assert fused <= (1 - SAVINGS[block]) * kept_bytes(step)


@pytest.mark.parametrize(
    ("block", "saved"),
    [
        # Three of what GELU keeps written out.
        (Dropped, 3 * 4 * WIDTH),
        (Attending, 0),
        (Branching, 0),
    ],
)
def test_fused_activation_functions_keep_what_norms_read(
    block: Callable[[], nn.Module], saved: int
) -> None:
    step = traced(block).step("pure16")
    fused = kept_bytes(with_fused_kernels(step, "activation functions"))
    assert kept_bytes(step) - fused == 2 * LENGTH * saved


@pytest.mark.filterwarnings("ignore:Your compiler for AOTAutograd")
@pytest.mark.parametrize("block", (Gated, Attending))
def test_operands_in_8_bits_are_made_again(block: Callable[[], nn.Module]) -> None:
    torch._dynamo.reset()
    step = traced(block).step("pure16")
    plain, cast_again = with_fused_kernels(step), with_fused_kernels(step, casts_again=True)
    fused = kept_bytes(with_kept_operands(cast_again, "made again"))
    own_input = LENGTH * WIDTH * 2
    expected = partitioned_bytes(in_8_bits(block()).to(torch.bfloat16)) - own_input
    assert fused == pytest.approx(expected, rel=0.03)
    assert fused < kept_bytes(plain)


@pytest.mark.parametrize("block", BLOCKS)
def test_it_never_takes_more_and_recompute_takes_less(block: Callable[[], nn.Module]) -> None:
    profile = traced(block)
    step = profile.step("pure16")
    fused = with_fused_kernels(step)
    peaks = [replay(one, 64).peak_allocated_bytes for one in (step, fused)]
    assert peaks[1] <= peaks[0]
    again = recomputed(fused, profile, "full")
    assert replay(again, 64).peak_allocated_bytes < peaks[1]


def test_a_model_without_blocks_stays_as_it_is(example_workload: Any) -> None:
    lstm = trace_workload(example_workload("lstm", hidden=64, vocab=100), numerics=["fp32"])
    step = lstm.step("fp32")
    assert with_fused_kernels(step).memory == step.memory
