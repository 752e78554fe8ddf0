"""The Profile: everything about one training step that does not depend on hardware.

A step is a sequence of *segments*: the forward, recompute or backward pass of one repeated block (a
transformer layer, a residual stage), of the root between the blocks, or the optimizer step. Equal
segments are stored once; `StepTrace.schedule` says in which order they run. Every size is affine in
the micro-batch, `value(b) = base + per_sample · b`, but where samples are compared with each other.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple, get_args

from pydantic import GetCoreSchemaHandler, SerializerFunctionWrapHandler, model_serializer
from pydantic_core import CoreSchema, core_schema

from ..catalog.frozen import FrozenModel
from ..catalog.text.quantity import format_count
from ..catalog.vocabulary import Recompute, TensorPlan

PROFILE_SCHEMA_VERSION = "1.0"

Numerics = Literal["fp32", "amp16", "pure16", "frozen16"]
"""Which trace a precision needs: storage and compute dtypes, not which 16-bit format. "frozen16" is
amp16 with the frozen parameters kept in 16 bits."""
MOSTLY_FROZEN = 0.2
"""Largest share of trainable parameters of a model whose frozen ones are worth a precision of their
own: adapters have about 1 %, a new head on a frozen body 10 %. A judgement."""
NUMERICS_OF_PRECISION: dict[str, Numerics] = {
    "fp32": "fp32",
    "tf32": "fp32",
    "fp16-amp": "amp16",
    "bf16-amp": "amp16",
    "fp8": "amp16",
    "bf16": "pure16",
}
Phase = Literal["forward", "recompute", "backward", "optimizer"]
KernelKind = Literal[
    "gemm",
    "attention",
    "convolution",
    "rnn",
    "norm",
    "softmax",
    "pointwise",
    "reduction",
    "embedding",
    "copy",
    "optimizer",
    "other",
    "fft",
]
KERNEL_KINDS: tuple[KernelKind, ...] = get_args(KernelKind)
COMPLEX = ".complex"
"""What the name of an operation on complex numbers ends with, but for Fourier transforms."""
DtypeClass = Literal["fp32", "16bit", "fp64", "integer"]
"""Dtype of the arithmetic; "16bit" becomes fp16 or bf16, "fp32" may become tf32, by precision."""
Category = Literal[
    "parameters", "gradients", "optimizer", "activations", "temporary", "inputs", "buffers"
]
CATEGORIES: tuple[Category, ...] = (
    "parameters",
    "gradients",
    "optimizer",
    "activations",
    "temporary",
    "inputs",
    "buffers",
)


class Affine(NamedTuple):
    """A quantity that grows linearly with the micro-batch size, but for pairs of samples.

    A matrix of the distances between b samples has b² = b + 2 · b(b-1)/2 elements: one per sample
    and two per pair. Whatever is counted in whole numbers has whole coefficients.

    >>> Affine(0, 1, 2).at(512) == 512**2
    True
    """

    base: float
    per_sample: float = 0
    per_pair: float = 0
    """For each of the b(b-1)/2 pairs of samples: 0 but where samples are compared."""
    per_triple: float = 0
    """For each of the b(b-1)(b-2)/6 triples, of which triplet losses try all."""

    def at(self, micro_batch: float) -> float:
        """Return the value at this micro-batch size."""
        line = self.base + self.per_sample * micro_batch
        if not self.per_pair and not self.per_triple:
            return line
        pairs = micro_batch * (micro_batch - 1) / 2
        return line + self.per_pair * pairs + self.per_triple * pairs * (micro_batch - 2) / 3

    @property
    def grows(self) -> bool:
        """Whether it depends on the micro-batch."""
        return any(self[1:])

    @property
    def compares_samples(self) -> bool:
        """Whether it grows faster than the micro-batch."""
        return any(self[2:])

    def times(self, factor: float) -> Affine:
        """Return so many times this."""
        return Affine(*(part * factor for part in self))

    @classmethod
    def total(cls, parts: Iterable[Affine]) -> Affine:
        """Return the sum."""
        return cls(*map(sum, zip(cls(0), *parts, strict=True)))

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: type[Affine], handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Store pairs and triples only where there are some."""
        schema = handler(source)
        schema["serialization"] = core_schema.plain_serializer_function_ser_schema(_stored)
        return schema


def _stored(size: Affine) -> tuple[float, ...]:
    return size if size[3] else size[: 2 + bool(size[2])]


class Kernel(FrozenModel):
    """One device kernel (or a fused group that eager torch launches as one aten operation).

    `dims` holds, by kind:
        gemm          batch, m, n, k              (batch > 1: batched matmul)
        attention     batch, heads, kv_heads, seq_q, seq_kv, head_dim
        convolution   batch, in_channels, out_channels, out_pixels, kernel_elements, filter_side
                      (the longest), stride and dilation (over all sides together), groups
        rnn           batch, steps, input, hidden, layers
        fft           elements, and of each dimension in its order length_0, length_1, ...
        others        elements
    `flops` counts matmul-like work only (gemm, attention, convolution, rnn), causal attention half.
    """

    kind: KernelKind
    op: str
    dims: dict[str, Affine]
    dtype: DtypeClass
    flops: Affine
    bytes_read: Affine
    bytes_written: Affine
    launches: int = 1
    causal: bool = False
    backward: bool = False
    """For attention and convolution: the backward kernel of that operation."""
    module: str = ""
    """Path of the module that launched it, in the first repetition of its block."""
    linear: bool = False
    """A GEMM of a linear layer: the only kernels that fp8 runs in 8 bits."""
    rerun: bool = False
    """In a backward pass: one of the forward pass that a checkpoint of the file, around a function
    or a part of a block, runs again. Those of a whole block are segments of their own."""


class Segment(FrozenModel):
    """The kernels of one phase of one block (or of the root), in launch order."""

    name: str
    phase: Phase
    block: str | None
    """Name of the block group it belongs to; None for the root and the optimizer."""
    kernels: tuple[Kernel, ...]
    offsets: tuple[int, ...] = ()
    """Tick of each kernel, counted from the start of the instance."""


class MemoryStream(FrozenModel):
    """Birth and death of every storage of one step, as columns of equal length.

    Ticks count operations. A storage born before the step has birth tick -1; one that outlives
    it has death tick `end_tick`. Rows are in order of birth.
    """

    birth_tick: list[int]
    death_tick: list[int]
    bytes_base: list[int]
    bytes_per_sample: list[int]
    category: list[int]
    """Index into `CATEGORIES`."""
    instance: list[int]
    """Index into `StepTrace.schedule` of the instance it was born in; -1 before the step."""
    end_tick: int
    producer: list[int] = []
    """Index into `KERNEL_KINDS` of the kernel that made it; -1 for none."""
    entered: list[int] = []
    """Index into `StepTrace.schedule` of the first repeated block that takes it; -1 for none."""
    outside_tick: list[int] = []
    """Last tick at which the backward pass of another instance touches it; -1 for none."""
    inside_tick: list[int] = []
    """Last tick at which the backward pass of its own instance touches it; -1 for none."""
    kept: list[int] = []
    """1 if autocast keeps it until the forward pass ends (a 16-bit copy of a weight), else 0."""
    bytes_per_pair: list[int] = []
    """As of an `Affine`; empty where nothing compares samples."""
    bytes_per_triple: list[int] = []

    @property
    def growth(self) -> tuple[list[int], ...]:
        """The four columns of sizes, as in an `Affine`; of pairs and triples zeros where empty."""
        zeros = [0] * len(self.bytes_base)
        pairs, triples = self.bytes_per_pair or zeros, self.bytes_per_triple or zeros
        return self.bytes_base, self.bytes_per_sample, pairs, triples

    @model_serializer(mode="wrap")
    def _without_empty_growth(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        stored = handler(self)
        for name in ("bytes_per_pair", "bytes_per_triple"):
            if not stored.get(name):
                stored.pop(name, None)
        return stored


class StepTrace(FrozenModel):
    """One training step (one micro-batch, forward + backward + optimizer) in one numerics class."""

    numerics: Numerics
    recompute: Recompute
    segments: tuple[Segment, ...]
    schedule: list[int]
    """Index into `segments` of every segment instance, in execution order."""
    start_tick: list[int]
    """Tick at which each instance of the schedule starts."""
    forward_of: list[int] = []
    """Index into `schedule` of the forward instance that each belongs to; -1 for the root."""
    rerun_end_tick: list[int] = []
    """For a forward instance: where a recompute of it may stop, all that is saved is there."""
    release_tick: list[int] = []
    """For a forward instance: when the backward pass has used the last tensor it saved."""
    memory: MemoryStream


class ParameterTensor(FrozenModel):
    """One parameter as FSDP shards it: by rows of its first dimension."""

    rows: int
    row_elements: int
    trainable: bool = True
    """Whether training changes it: it requires a gradient, and gets one."""


class BlockGroup(FrozenModel):
    """A run of equal blocks (same class, same parameter shapes): the unit of FSDP and recompute."""

    name: str
    class_name: str
    count: int
    parameters: int
    """Per block."""
    trainable_parameters: int
    """Per block."""
    unused_parameters: int = 0
    """Per block: trainable, but without a gradient in some block of the run."""
    parameter_tensors: int
    boundary_bytes: Affine
    """Activation that enters one block, in the dtype of the amp16 trace if there is one."""
    tensors: tuple[ParameterTensor, ...] = ()
    """Parameters of one block, each by itself."""
    linears: tuple[Linear, ...] = ()
    attention_heads: int | None = None
    attention_kv_heads: int | None = None

    @property
    def trained_parameters(self) -> int:
        """Per block: what gets a gradient, and is updated."""
        return self.trainable_parameters - self.unused_parameters


class Linear(FrozenModel):
    """A linear layer of a block that tensor parallelism may split."""

    name: str
    in_features: int
    out_features: int
    parameters: int


class FrozenLinears(FrozenModel):
    """The weights that 4-bit loading quantises: of frozen linear layers, all but the output head.

    Source: transformers, integrations/bitsandbytes.py (`replace_with_bnb_linear` takes Linear and
    Conv1D) and quantizers (`get_keys_to_not_convert`: the output head, and what it is tied to).
    """

    count: int
    """Layers."""
    parameters: int
    """Of their weights, all layers together; biases stay as they are."""
    largest: int
    """Parameters of the largest weight."""


class BatchTensor(FrozenModel):
    """One tensor of a batch whose first dimension is that of the samples."""

    sample_shape: tuple[int, ...]
    """Without that dimension; empty for one number a sample."""
    dtype: str
    """As torch names it: "int64", "float32"."""


class OptimizerFacts(FrozenModel):
    """What the optimizer keeps and moves, per trained parameter."""

    name: str
    """Canonical: adamw, adam, sgd, adafactor, adamw8bit, muon, or the class name in lower case;
    of several optimizers with a plus between them."""
    state_bytes_per_parameter: float
    step_bytes_per_parameter: float
    """Bytes read and written by the step, per trained parameter."""
    step_bytes_per_sample: float = 0.0
    """The same of sparse gradients, per sample of the step."""
    temporary_bytes_per_parameter: float
    launches: int
    """Kernels that one step launches."""


class Profile(FrozenModel):
    """One model file with one set of params, traced; cached and shown by `gpuplan profile`."""

    schema_version: str = PROFILE_SCHEMA_VERSION
    name: str
    source_hash: str
    params: dict[str, object]
    torch_version: str
    parameters: int
    trainable_parameters: int
    """Those that require a gradient."""
    unused_parameters: int = 0
    """Trainable, but the loss leaves them out: they get no gradient, and so no update."""
    sparse_parameters: int = 0
    """Trained by sparse gradients: rows of tables, each with its index."""
    parameter_tensors: int
    blocks: tuple[BlockGroup, ...]
    root_tensors: tuple[ParameterTensor, ...] = ()
    """Parameters outside the blocks; a shared (tied) parameter stands once."""
    flops: Affine
    """Forward + backward FLOPs of one micro-batch (matmul-like kernels), without recompute: that of
    the file itself is not in it either."""
    tokens_per_sample: float | None
    batch_bytes: Affine
    """Host-to-device bytes of one micro-batch."""
    batch_tensors: tuple[BatchTensor, ...] = ()
    """What those are; empty where that is not known."""
    file_precision: str | None
    """The file's own autocast or parameter dtype as a precision name; None when it sets none."""
    file_compiles: bool
    loss_in_model: bool = False
    """Whether the model computes its cross-entropy itself: compiled whole, that is fused too."""
    returns_logits: bool = False
    """Whether it returns the logits beside that loss: compiled whole, it makes their gradient too,
    of zeros."""
    default_micro_batch: int | None
    """Default of `make_batch`'s batch size, when the file gives one."""
    optimizer: OptimizerFacts
    tensor_plan: TensorPlan = "none"
    """What the model says of tensor and sequence parallelism (`tensor_plan.py`)."""
    tied_modules: tuple[str, str] | None = None
    """Two names of one weight that tensor parallelism would make two, if any (`ties.py`)."""
    tied_blocks: tuple[str, str] | None = None
    """Two names of one weight that two blocks, or a block and the rest, share (`ties.py`)."""
    frozen_linears: FrozenLinears | None = None
    """None where no linear layer is frozen."""
    steps: tuple[StepTrace, ...]
    """One per numerics class that was traced, with recompute "none"."""
    synced_norms: tuple[int, ...] = ()
    """Channels of each SyncBatchNorm that trains: its statistics are those of all data ranks."""
    mixes_samples: bool = False
    """Whether the loss multiplies the samples of a micro-batch with each other, as CLIP's does."""
    warnings: tuple[str, ...] = ()
    """Those of the notes that say that numbers may be wrong."""
    notes: tuple[str, ...] = ()

    @property
    def trained_parameters(self) -> int:
        """How many parameters get a gradient, and so an update and the optimizer's state."""
        return self.trainable_parameters - self.unused_parameters

    @property
    def flops_per_sample(self) -> float:
        """Forward + backward FLOPs: where samples are compared, at the file's own micro-batch."""
        own = self.default_micro_batch
        if self.flops.compares_samples and own:
            return self.flops.at(own) / own
        return self.flops.per_sample

    @property
    def is_mostly_frozen(self) -> bool:
        """Whether by far the most parameters are frozen, as those under adapters are."""
        return self.trainable_parameters <= MOSTLY_FROZEN * self.parameters

    def __str__(self) -> str:
        """Return in one line what was traced, how large it is, and in which numerics."""
        facts = [
            f"{format_count(self.parameters)} parameters",
            f"{self.flops_per_sample:.3g} FLOPs a sample",
            f"optimizer {self.optimizer.name}",
            f"traced in {' and '.join(self.numerics())}",
        ]
        return f"Profile of {self.name}: {', '.join(facts)}"

    def __repr__(self) -> str:
        """Return the same line as `str`: all kernels and storages say less."""
        return f"<{self}>"

    def numerics(self) -> tuple[Numerics, ...]:
        """Return the numerics classes that this Profile holds a trace for."""
        return tuple(step.numerics for step in self.steps)

    def step(self, numerics: Numerics) -> StepTrace:
        """Return the trace of one numerics class.

        Raises:
            KeyError: the Profile was made without it.
        """
        for step in self.steps:
            if step.numerics == numerics:
                return step
        raise KeyError(numerics)
