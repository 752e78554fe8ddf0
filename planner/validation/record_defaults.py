"""What a run record leaves out, taken as its software did by default, and named.

The keys are the stack, the date of the software and facts of the device, never the source of a
record. Every value taken is listed in `StatedRun.assumed` as `field=value (why)`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from ...catalog.errors import GpuplanError, did_you_mean
from ...catalog.types import Accelerator, Instance, Link
from ...catalog.units import GIGABIT_BYTES
from ...catalog.vocabulary import PRECISIONS, Offloaded, Precision, Recompute, Stack
from ...profiles.records import RunRecord
from ..hardware.cluster import Site
from ..plan.layout import Layout
from ..plan.setup import Date, Setup
from ..software.deepspeed_engine import FUSED_LOSS, KEPT_LOGITS
from ..software.stack import casts_layers
from ..software.versions import (
    BLOCKING,
    ENGINE_IN_MEGATRON,
    FLASH_PACKAGE,
    FUSED_OPTIMIZER,
    INT8,
    NATIVE_AUTOCAST,
    NVFP4,
    TRANSFORMER_ENGINE,
    XLA_OVERLAPS_ON_GPUS,
)

T = TypeVar("T")

TYPICAL_PER_NODE = 8
TYPICAL_PORT_GBIT_S = 100
"""Where a fabric is neither stated nor known from instances of the device."""
ICI_DOMAIN_CHIPS = {
    # Largest slice of one torus; https://cloud.google.com/tpu/docs/system-architecture-tpu-vm and
    # the page of each version there (2025-11).
    "TPU-v4": 4096,
    "TPU-v5e": 256,
    "TPU-v5p": 8960,
    "TPU-v6e": 256,
    "TPU-v7": 9216,
}
FUSED_ATTENTION_SINCE: dict[Stack, Date] = {
    # scaled_dot_product_attention came with torch 2.0.
    "torch-eager": (2023, 3),
    "torch-compile": (2023, 3),
    # Megatron-LM's --use-flash-attn was opt-in until Transformer Engine became its default spec.
    "megatron": (2024, 1),
    # MaxText: splash attention; the dot product before.
    "xla": (2023, 10),
}


BESIDE: dict[str, Precision] = {NVFP4: "fp8", INT8: "bf16-amp"}
"""Formats of products that records name as their precision: what the rest of the run is in."""


class UnstatedError(GpuplanError):
    """A record leaves out, or names, something that cannot be predicted from."""


@dataclass(frozen=True, kw_only=True)
class StatedRun:
    """A run with nothing left open: what the planner needs to predict it."""

    site: Site
    setup: Setup
    params: dict[str, Any]
    """For the functions of the model file, the choice of attention included."""
    assumed: tuple[str, ...]


def state_run(
    record: RunRecord,
    accelerator: Accelerator,
    *,
    instances: Iterable[Instance] = (),
    model_takes: Container[str] = (),
) -> StatedRun:
    """Return the run with every null of its record filled in.

    Args:
        record: The run as its source states it.
        accelerator: The device that `record.accelerator` names.
        instances: Instances of that device, for the usual link and node where none is stated.
        model_takes: Names of the params that the model file's functions take.

    Raises:
        UnstatedError: The record names a precision we do not know, or leaves the batch open.
    """
    assumed: list[str] = []
    peers = tuple(instances)
    stack = _stack(record, accelerator, assumed)
    layout = _layout(record, stack, assumed)
    offload = _offload(record, stack, layout)
    micro_batch, grad_accum = _batch(record, layout, assumed)
    per_node, nodes = _nodes(record, accelerator, peers, assumed)
    return StatedRun(
        site=Site(
            accelerator=accelerator,
            per_node=per_node,
            nodes=nodes,
            link_domain=_link_domain(accelerator, per_node, nodes),
            intra_link=_intra_link(accelerator, peers, per_node, assumed),
            inter_link=_inter_link(record, peers, per_node, nodes, assumed),
        ),
        params=_params(record, accelerator, stack, model_takes, assumed),
        setup=Setup(
            layout=layout,
            precision=_precision(record, accelerator, stack, assumed),
            micro_batch=micro_batch,
            grad_accum=grad_accum,
            recompute=_recompute(record, stack, assumed),
            stack=stack,
            compile=_compile(record, stack, assumed),
            autocast=_autocast(record, stack, layout, offload),
            optimizer=_optimizer(record, assumed),
            software_date=record.software_date,
            features=_features(record, accelerator, stack, assumed),
            offload=offload,
            frozen_precision=record.frozen_precision,
        ),
        assumed=tuple(assumed),
    )


def _stack(record: RunRecord, accelerator: Accelerator, assumed: list[str]) -> Stack:
    if record.stack is not None:
        return record.stack
    stack: Stack = "torch-compile" if record.compile else "torch-eager"
    if accelerator.needs_xla:
        stack = "xla"
    assumed.append(f"stack={stack} (what runs on {accelerator.name})")
    return stack


def _layout(record: RunRecord, stack: Stack, assumed: list[str]) -> Layout:
    stated = record.layout
    inner = stated.tensor * stated.pipeline * stated.context
    data = stated.data
    if data is None:
        data = max(1, record.accelerators // inner)
        if record.accelerators > 1:
            assumed.append(f"layout.data={data} (accelerators ÷ the other degrees)")
    zero_stage = stated.zero_stage
    if zero_stage is None:
        zero_stage = 0
        if data > 1:
            assumed.append("layout.zero_stage=0 (plain data parallelism)")
    shard = stated.shard
    if shard is None:
        shard = data * stated.context if zero_stage else 1
        if zero_stage and shard > 1:
            assumed.append(f"layout.shard={shard} (all data ranks)")
    if data * inner != record.accelerators:
        raise UnstatedError(
            f"the layout occupies {data * inner} accelerators, the record says"
            f" {record.accelerators}"
        )
    degrees = {name: getattr(stated, name) for name in ("tensor", "pipeline", "context", "expert")}
    degrees["virtual_stages"] = stated.virtual_stages or _virtual_stages(record, stack, assumed)
    try:
        return Layout(
            data=data,
            shard=shard,
            zero_stage=zero_stage,
            sequence_parallel=stated.sequence_parallel,
            **degrees,
        )
    except ValueError as error:
        raise UnstatedError(f"the layout does not fit together: {error}") from None


def _virtual_stages(record: RunRecord, stack: Stack, assumed: list[str]) -> int:
    """Return the chunks of a pipeline stage where none are stated.

    Recipes of Megatron with Transformer Engine interleave as far as the layers allow, one layer a
    chunk; elsewhere stages are whole.
    """
    pipeline, layers = record.layout.pipeline, record.params.get("layers")
    if pipeline == 1 or stack != "megatron" or _engine(record) is None:
        return 1
    if not isinstance(layers, int) or layers % pipeline:
        return 1
    found = layers // pipeline
    assumed.append(f"layout.virtual_stages={found} (layers ÷ stages, as its recipes interleave)")
    return found


def _batch(record: RunRecord, layout: Layout, assumed: list[str]) -> tuple[int, int]:
    """Return (micro-batch, accumulation steps), each derived from the global batch if left out."""
    micro_batch, grad_accum, total = record.micro_batch, record.grad_accum, record.global_batch
    if micro_batch is None:
        if total is None:
            raise UnstatedError("neither micro_batch nor global_batch is stated")
        micro_batch = _divide(total, layout.data * (grad_accum or 1), "data ranks")
        assumed.append(f"micro_batch={micro_batch} (global batch ÷ data ranks)")
    if grad_accum is None:
        grad_accum = _divide(total, micro_batch * layout.data, "micro-batches") if total else 1
        assumed.append(f"grad_accum={grad_accum} (global batch ÷ micro-batches)")
    return micro_batch, grad_accum


def _divide(total: int, parts: int, what: str) -> int:
    if total % parts:
        raise UnstatedError(f"the global batch {total} does not divide over {parts} {what}")
    return total // parts


def _nodes(
    record: RunRecord, accelerator: Accelerator, peers: tuple[Instance, ...], assumed: list[str]
) -> tuple[int, int]:
    """Return (accelerators of one fast-link domain, number of domains)."""
    total = record.accelerators
    per_node = record.per_node
    if per_node is None:
        per_node = _most_common(int(peer.accelerators) for peer in peers if peer.accelerators > 1)
        per_node = per_node or TYPICAL_PER_NODE
        if total > 1:
            assumed.append(f"per_node={per_node} (most instances of {accelerator.name})")
    # Equal nodes: 12 accelerators on nodes of 8 are planned as 2 x 6.
    per_node = next(size for size in range(min(per_node, total), 0, -1) if total % size == 0)
    return per_node, total // per_node


def _link_domain(accelerator: Accelerator, per_node: int, nodes: int) -> int | None:
    """Return how many chips of several hosts one torus joins; None for devices without one."""
    torus = ICI_DOMAIN_CHIPS.get(accelerator.name)
    if torus is None or nodes == 1:
        return None
    total = per_node * nodes
    return next(size for size in range(min(torus, total), 0, -1) if total % size == 0)


def _intra_link(
    accelerator: Accelerator, peers: tuple[Instance, ...], per_node: int, assumed: list[str]
) -> Link:
    if accelerator.link_bytes_per_s is not None or per_node == 1:
        return Link(name=accelerator.link, bytes_per_s=accelerator.link_bytes_per_s)
    known = [peer.intra_link for peer in peers if peer.intra_link.bytes_per_s]
    if not known:
        return Link(name=accelerator.link, bytes_per_s=None)
    link = _most_common(known)
    assert link is not None
    assumed.append(f"intra-node link={link.name} (most instances of {accelerator.name})")
    return link


def _inter_link(
    record: RunRecord,
    peers: tuple[Instance, ...],
    per_node: int,
    nodes: int,
    assumed: list[str],
) -> Link:
    if record.inter_node_gbit_s is not None:
        return Link(name=None, bytes_per_s=record.inter_node_gbit_s * GIGABIT_BYTES, rdma=True)
    if nodes == 1:
        return Link(name=None, bytes_per_s=None)
    rates = [peer.inter_link.bytes_per_s for peer in peers if peer.accelerators > 1]
    rate = _most_common(rate for rate in rates if rate is not None)
    why = "most instances of its kind"
    if rate is None:
        rate, why = TYPICAL_PORT_GBIT_S * GIGABIT_BYTES * per_node, "one port an accelerator"
    assumed.append(f"inter_node_gbit_s={rate / GIGABIT_BYTES:g} ({why})")
    return Link(name=None, bytes_per_s=rate, rdma=True)


def _precision(
    record: RunRecord, accelerator: Accelerator, stack: Stack, assumed: list[str]
) -> Precision:
    if record.precision is None:
        precision: Precision = "bf16-amp" if stack == "xla" else "fp32"
        assumed.append(f"precision={precision} (default of {stack})")
        return precision
    if record.precision in BESIDE:
        return BESIDE[record.precision]
    if record.precision not in PRECISIONS:
        raise UnstatedError(
            f"precision {record.precision!r} is not predicted yet; known:"
            f" {', '.join((*PRECISIONS, *BESIDE))}.{did_you_mean(record.precision, PRECISIONS)}"
        )
    if record.precision == "tf32" and accelerator.vendor == "AMD":
        # hipBLASLt takes TF32 only behind HIPBLASLT_ALLOW_TF32; torch's own switch is for CUDA.
        assumed.append("precision=fp32 (torch on ROCm leaves TF32 off)")
        return "fp32"
    return cast(Precision, record.precision)


def _recompute(record: RunRecord, stack: Stack, assumed: list[str]) -> Recompute:
    if record.recompute is not None:
        return record.recompute
    if "parameter-offload" in record.features:
        assumed.append("recompute=full (cheaper than the offload of parameters, so tried first)")
        return "full"
    # MaxText's remat_policy is "full" unless told otherwise; torch and Megatron keep everything.
    recompute: Recompute = "full" if stack == "xla" else "none"
    assumed.append(f"recompute={recompute} (default of {stack})")
    return recompute


def _offload(record: RunRecord, stack: Stack, layout: Layout) -> frozenset[Offloaded]:
    """Return what the record keeps in host memory, as far as it is predicted.

    XLA schedules the copies of its own host offload, whose rates nobody publishes: those steps are
    predicted as if compute hid them.
    """
    found: set[Offloaded] = set()
    if "parameter-offload" in record.features:
        found.add("parameters")
    elif record.offload:
        found.add("optimizer")
    torch = stack.startswith("torch") and layout.is_data_parallel_only
    if "activation-offload" in record.features and torch:
        found.add("activations")
    return frozenset(found)


def _compile(record: RunRecord, stack: Stack, assumed: list[str]) -> bool:
    if record.compile is not None:
        return record.compile
    if "async-tensor-parallel" in record.features:
        assumed.append("compile=true (torch's asynchronous tensor parallelism needs it)")
        return True
    compiled = stack == "torch-compile"
    if stack.startswith("torch"):
        assumed.append(f"compile={str(compiled).lower()} (default of {stack})")
    return compiled


def _params(
    record: RunRecord,
    accelerator: Accelerator,
    stack: Stack,
    model_takes: Container[str],
    assumed: list[str],
) -> dict[str, Any]:
    """Return the params of the model, with what other fields of the record say about it."""
    params = dict(record.params)
    if "attention" in model_takes and "attention" not in params:
        params["attention"] = _attention(record, accelerator, stack, assumed)
    if "head" in model_takes and "head" not in params and "squad" in record.model_name.casefold():
        params["head"] = "span"
        assumed.append(f"params.head=span (what {record.model_name} trains)")
    if "channels_last" in model_takes and "channels_last" not in params:
        params["channels_last"] = bool(record.channels_last)
        if record.channels_last is None:
            assumed.append("channels_last=false (torch's default memory order)")
    return params


def _attention(
    record: RunRecord, accelerator: Accelerator, stack: Stack, assumed: list[str]
) -> str:
    if record.attention is not None:
        return "eager" if record.attention == "eager" else "fused"
    if stack == "xla" and not accelerator.needs_xla:
        attention = "fused" if TRANSFORMER_ENGINE in record.features else "eager"
        assumed.append(f"attention={attention} (XLA on GPUs has fused attention from the engine)")
        return attention
    since = FUSED_ATTENTION_SINCE[stack]
    date = record.software_date
    attention = "eager" if date is not None and date < since else "fused"
    known = "since" if attention == "fused" else "before"
    assumed.append(f"attention={attention} (default of {stack} {known} {since[0]}-{since[1]:02})")
    return attention


def _autocast(
    record: RunRecord, stack: Stack, layout: Layout, offload: frozenset[Offloaded]
) -> bool:
    """Return whether 16-bit compute came from torch.autocast.

    Where the stack does not decide (`casts_layers`), Apex O2 ran 16-bit layers before torch had
    autocast.
    """
    if not casts_layers(stack, layout, offload):
        return False
    if "O2" in record.precision_label:
        return False
    date = record.software_date
    return date is None or date >= NATIVE_AUTOCAST


def _features(
    record: RunRecord, accelerator: Accelerator, stack: Stack, assumed: list[str]
) -> frozenset[str]:
    """Return the features of a run, with those that its software has without saying so."""
    implied: dict[str, str] = {}
    if stack == "torch-eager":
        implied[KEPT_LOGITS] = "a loop's variable holds them until the next step"
        if record.attention == "flash":
            implied[FUSED_LOSS] = "the flash-attn package has one"
    if stack == "torch-compile":
        implied[FUSED_OPTIMIZER] = "what torchtune and torchtitan set beside compile"
    date = record.software_date
    if stack == "xla" and not accelerator.needs_xla and date and date < XLA_OVERLAPS_ON_GPUS:
        implied[BLOCKING] = "XLA on GPUs before 2024-03"
    why = _engine(record) if stack == "megatron" else None
    if why:
        implied[TRANSFORMER_ENGINE] = why
    new = {name: why for name, why in implied.items() if name not in record.features}
    assumed += [f"features={name} ({why})" for name, why in new.items()]
    package = [FLASH_PACKAGE] if record.attention == "flash" else []
    narrow = [record.precision] if record.precision in BESIDE else []
    return frozenset((*record.features, *new, *package, *narrow))


def _engine(record: RunRecord) -> str | None:
    """Return why a run of Megatron had Transformer Engine's layers; None if it did not."""
    date = record.software_date
    if record.precision in ("fp8", NVFP4):
        return "Megatron's only way to 8 and 4 bits"
    of_intel = record.accelerator.startswith("Gaudi")  # Its port of the engine does fp8 only.
    if date is None or record.attention == "eager" or of_intel:
        return None
    if date >= FUSED_ATTENTION_SINCE["megatron"]:
        return "Megatron's default layers since 2024-01"
    if record.attention == "fused" and date >= ENGINE_IN_MEGATRON:
        return "where Megatron's fused attention is from, since 2023-06"
    return None


def _optimizer(record: RunRecord, assumed: list[str]) -> str | None:
    if record.optimizer is None:
        assumed.append("optimizer=the model file's own")
    if record.optimizer == "adamw" and "8-bit-optimizer" in record.features:
        return "adamw8bit"
    return record.optimizer


def _most_common(values: Iterable[T]) -> T | None:
    """Return the value that comes most often, the first of equals; None if there is none."""
    counted = Counter(values).most_common(1)
    return counted[0][0] if counted else None
