"""The kernels of a whole transformer block, written by hand, in the step of a toy decoder."""

from gpuplan.planner.parallelism.rank_trace import SplitTrace
from gpuplan.profiles.profile import Affine, Kernel, Profile, Segment, StepTrace

SEQ, HIDDEN, FFN, HEADS, VOCAB = 1024, 512, 2048, 8, 4096
LAYERS = 8
ACTIVATION_BYTES = 2 * SEQ * HIDDEN


def linear(module: str, out: int, into: int, kind: str = "forward") -> Kernel:
    tokens = Affine(0, SEQ)
    m, n, k = {
        "forward": (tokens, Affine(out), Affine(into)),
        "input": (tokens, Affine(into), Affine(out)),
        "weight": (Affine(out), Affine(into), tokens),
    }[kind]
    written = Affine(2 * out * into) if kind == "weight" else Affine(0, 2 * SEQ * n.base)
    return Kernel(
        kind="gemm",
        op="mm",
        dims={"batch": Affine(1), "m": m, "n": n, "k": k},
        dtype="16bit",
        flops=Affine(0, 2 * SEQ * out * into),
        bytes_read=Affine(2 * out * into, 2 * SEQ * into),
        bytes_written=written,
        module=module,
        linear=True,
    )


def pointwise(elements: int, module: str = "") -> Kernel:
    return Kernel(
        kind="pointwise",
        op="gelu",
        dims={"elements": Affine(0, elements)},
        dtype="16bit",
        flops=Affine(0),
        bytes_read=Affine(0, 2 * elements),
        bytes_written=Affine(0, 2 * elements),
        module=module,
    )


def attention(*, backward: bool = False) -> Kernel:
    size = 2 * SEQ * HIDDEN
    return Kernel(
        kind="attention",
        op="flash",
        dims={
            "batch": Affine(0, 1),
            "heads": Affine(HEADS),
            "kv_heads": Affine(HEADS),
            "seq_q": Affine(SEQ),
            "seq_kv": Affine(SEQ),
            "head_dim": Affine(HIDDEN / HEADS),
        },
        dtype="16bit",
        flops=Affine(0, 2 * SEQ**2 * HIDDEN * (2.5 if backward else 1)),
        bytes_read=Affine(0, 3 * size),
        bytes_written=Affine(0, size),
        causal=True,
        backward=backward,
    )


def backward_of(kernel: Kernel) -> list[Kernel]:
    out, into = int(kernel.dims["n"].base), int(kernel.dims["k"].base)
    return [linear(kernel.module, out, into, kind) for kind in ("input", "weight")]


def block_forward(*, separate: bool = False) -> list[Kernel]:
    names = [("q", HIDDEN), ("k", HIDDEN), ("v", HIDDEN)] if separate else [("qkv", 3 * HIDDEN)]
    return [
        pointwise(SEQ * HIDDEN, "b.norm"),
        *(linear(f"b.{name}", width, HIDDEN) for name, width in names),
        pointwise(3 * SEQ * HIDDEN, "b"),
        attention(),
        linear("b.out", HIDDEN, HIDDEN),
        pointwise(SEQ * HIDDEN, "b.norm2"),
        linear("b.up", FFN, HIDDEN),
        pointwise(SEQ * FFN, "b"),
        linear("b.down", HIDDEN, FFN),
        pointwise(SEQ * HIDDEN, "b"),
    ]


def trace_of(profile: Profile, *, separate: bool = False, recomputes: bool = False) -> StepTrace:
    """Return the hand-written decoder's step with the kernels of a whole transformer block."""
    step = profile.step("amp16")
    forward = block_forward(separate=separate)
    backward: list[Kernel] = []
    for kernel in reversed(forward):
        if kernel.kind == "gemm":
            backward += backward_of(kernel)
        elif kernel.kind == "attention":
            backward.append(attention(backward=True))
        else:
            backward.append(kernel)
    head = linear("head", VOCAB, HIDDEN)
    kernels = {
        ("forward", "layers"): forward,
        ("backward", "layers"): backward,
        ("forward", None): [head, pointwise(SEQ * VOCAB)],
        ("backward", None): [pointwise(SEQ * VOCAB), *backward_of(head)],
    }
    segments = []
    for segment in step.segments:
        own = tuple(kernels.get((segment.phase, segment.block), ()))
        offsets = tuple(min(i, 3) for i in range(len(own)))
        segments.append(segment.model_copy(update={"kernels": own, "offsets": offsets}))
    return step.model_copy(update={"segments": tuple(segments)})


def segment_of(split: SplitTrace, phase: str, block: str | None) -> tuple[Segment, int]:
    for i, segment in enumerate(split.trace.segments):
        if (segment.phase, segment.block) == (phase, block):
            return segment, i
    raise AssertionError((phase, block))


def flops(trace: StepTrace) -> float:
    return sum(
        kernel.flops.per_sample for i in trace.schedule for kernel in trace.segments[i].kernels
    )
