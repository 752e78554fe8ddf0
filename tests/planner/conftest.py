"""A small profile written by hand, so that the planner's laws are tested without torch."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gpuplan.profiles.profile import (
    CATEGORIES,
    Affine,
    BlockGroup,
    Kernel,
    MemoryStream,
    OptimizerFacts,
    Profile,
    Segment,
    StepTrace,
)
from gpuplan.profiles.tracing_process.service import make_profile
from gpuplan.profiles.user_model.spec import parse_model_spec

EXAMPLES = Path(__file__).parents[2] / "examples"
SEQ = 1024


def _gemm(m_per_sample: float, n: int, k: int) -> Kernel:
    return Kernel(
        kind="gemm",
        op="mm",
        dims={
            "batch": Affine(1),
            "m": Affine(0, m_per_sample),
            "n": Affine(n),
            "k": Affine(k),
        },
        dtype="16bit",
        flops=Affine(0, 2 * m_per_sample * n * k),
        bytes_read=Affine(2 * n * k, 2 * m_per_sample * k),
        bytes_written=Affine(0, 2 * m_per_sample * n),
        linear=True,
    )


def _pointwise(elements: int) -> Kernel:
    return Kernel(
        kind="pointwise",
        op="gelu",
        dims={"elements": Affine(0, elements)},
        dtype="16bit",
        flops=Affine(0),
        bytes_read=Affine(0, 2 * elements),
        bytes_written=Affine(0, 2 * elements),
    )


class _Stream:
    def __init__(self) -> None:
        self.rows: list[list[int]] = []

    def add(
        self, birth: int, death: int, base: int, per_sample: int, category: str, instance: int
    ) -> None:
        code = CATEGORIES.index(category)  # pyright: ignore[reportArgumentType]
        self.rows.append([birth, death, base, per_sample, code, instance])

    def build(self, end_tick: int) -> MemoryStream:
        rows = sorted(self.rows)
        columns = [list(column) for column in zip(*rows, strict=True)]
        return MemoryStream(
            birth_tick=columns[0],
            death_tick=columns[1],
            bytes_base=columns[2],
            bytes_per_sample=columns[3],
            category=columns[4],
            instance=columns[5],
            end_tick=end_tick,
        )


def decoder(
    layers: int = 8, hidden: int = 512, vocab: int = 4096, trainable: float = 1.0
) -> Profile:
    """Return a decoder-like profile of equal blocks with 12·hidden² parameters each."""
    block_params, root_params = 12 * hidden**2, vocab * hidden
    block_trained = int(block_params * trainable)
    root_trained = root_params if trainable == 1.0 else 0
    forward = Segment(
        name="layers",
        phase="forward",
        block="layers",
        kernels=(
            _gemm(SEQ, 4 * hidden, hidden),
            _pointwise(SEQ * 4 * hidden),
            _gemm(SEQ, 8 * hidden, hidden),
        ),
    )
    backward = forward.model_copy(
        update={"phase": "backward", "kernels": forward.kernels + forward.kernels}
    )
    head = Segment(name="head", phase="forward", block=None, kernels=(_gemm(SEQ, vocab, hidden),))
    head_back = head.model_copy(update={"phase": "backward", "kernels": head.kernels * 2})
    optimizer = Segment(name="optimizer", phase="optimizer", block=None, kernels=())
    schedule = [0] * layers + [1, 2] + [3] * layers + [4]
    ticks = 4
    starts = [i * ticks for i in range(len(schedule))]
    end = len(schedule) * ticks
    stream = _Stream()
    for params, trained in [(block_params, block_trained)] * layers + [(root_params, root_trained)]:
        stream.add(-1, end, 4 * params, 0, "parameters", -1)
        if trained:
            stream.add(-1, end, 8 * trained, 0, "optimizer", -1)
    stream.add(-1, end, 0, 8 * SEQ, "inputs", -1)
    for i in range(layers):
        back = 2 * layers + 1 - i
        stream.add(starts[i], starts[back] + 3, 0, 34 * SEQ * hidden, "activations", i)
        stream.add(starts[i] + 1, starts[i] + 2, 0, 8 * SEQ * hidden, "temporary", i)
        stream.add(starts[back] + 1, starts[back] + 2, 0, 16 * SEQ * hidden, "temporary", back)
        if block_trained:
            stream.add(starts[back] + 2, end, 4 * block_trained, 0, "gradients", back)
    stream.add(starts[layers], starts[layers + 1] + 2, 0, 4 * SEQ * vocab, "activations", layers)
    if root_trained:
        stream.add(starts[layers + 1] + 1, end, 4 * root_trained, 0, "gradients", layers + 1)
    step = StepTrace(
        numerics="amp16",
        recompute="none",
        segments=(forward, head, head_back, backward, optimizer),
        schedule=schedule,
        start_tick=starts,
        memory=stream.build(end),
    )
    per_sample = sum(k.flops.per_sample for i in schedule for k in step.segments[i].kernels)
    return Profile(
        name="toy",
        source_hash="0" * 64,
        params={},
        torch_version="2.13.0",
        parameters=block_params * layers + root_params,
        trainable_parameters=block_trained * layers + root_trained,
        parameter_tensors=2 * layers + 1,
        blocks=(
            BlockGroup(
                name="layers",
                class_name="Block",
                count=layers,
                parameters=block_params,
                trainable_parameters=block_trained,
                parameter_tensors=2,
                boundary_bytes=Affine(0, 2 * SEQ * hidden),
            ),
        ),
        flops=Affine(0, per_sample),
        tokens_per_sample=SEQ,
        batch_bytes=Affine(0, 8 * SEQ),
        file_precision=None,
        file_compiles=False,
        default_micro_batch=None,
        optimizer=OptimizerFacts(
            name="adamw",
            state_bytes_per_parameter=8,
            step_bytes_per_parameter=28,
            temporary_bytes_per_parameter=0,
            launches=4,
        ),
        steps=(step, _in_fp32(step), step.model_copy(update={"numerics": "pure16"})),
    )


def _in_fp32(step: StepTrace) -> StepTrace:
    segments = tuple(
        segment.model_copy(
            update={
                "kernels": tuple(k.model_copy(update={"dtype": "fp32"}) for k in segment.kernels)
            }
        )
        for segment in step.segments
    )
    return step.model_copy(update={"numerics": "fp32", "segments": segments})


@pytest.fixture(scope="session")
def make_decoder() -> Callable[..., Profile]:
    """Return the builder of hand-written profiles."""
    return decoder


@pytest.fixture
def toy() -> Profile:
    """Return one hand-written decoder profile."""
    return decoder()


@pytest.fixture(scope="session")
def small_decoder() -> Profile:
    """Return the profile of a decoder of four layers that is really traced."""
    params = {"layers": 4, "hidden": 256, "heads": 4, "kv_heads": 4, "ffn": 1024, "vocab": 1000}
    spec = parse_model_spec(str(EXAMPLES / "decoder.py"), params={**params, "seq_len": 256})
    return make_profile(spec, numerics=("amp16", "pure16"), use_cache=False)


@pytest.fixture(scope="session")
def make_rigid_decoder() -> Callable[..., Profile]:
    """Return the builder of decoders of which nothing can be recomputed."""

    def build(**sizes: float) -> Profile:
        plain = decoder(**sizes)  # pyright: ignore[reportArgumentType]
        return plain.model_copy(update={"steps": tuple(map(_rigid, plain.steps))})

    return build


def _rigid(step: StepTrace) -> StepTrace:
    instances, rows = len(step.schedule), len(step.memory.birth_tick)
    columns = {name: [-1] * rows for name in ("producer", "entered", "outside_tick", "inside_tick")}
    memory = step.memory.model_copy(update={**columns, "kept": [0] * rows})
    ends = {name: [-1] * instances for name in ("forward_of", "rerun_end_tick", "release_tick")}
    return step.model_copy(update={**ends, "memory": memory})
