"""What a run record leaves out, taken as its software did by default, and named.

The keys are the stack, the date of the software and facts of the device, never the source of a
record. Every value taken is listed in `StatedRun.assumed` as `field=value (why)`.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass
from typing import Any

from ...catalog.types import Accelerator, Instance
from ...catalog.vocabulary import Stack
from ...profiles.records import RunRecord
from ..hardware.cluster import Site
from ..plan.layout import Layout
from ..plan.setup import Setup
from .record_machines import inter_link, intra_link, link_domain, nodes_of
from .record_software import (
    UnstatedError,
    engine_of,
    features_of,
    is_compiled,
    offload_of,
    optimizer_of,
    params_of,
    precision_of,
    recompute_of,
    uses_autocast,
)


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
        instances: Instances of that device, or of its like: the usual link and node where none is
            stated.
        model_takes: Names of the params that the model file's functions take.

    Raises:
        UnstatedError: The record names a precision we do not know, or leaves the batch open.
    """
    assumed: list[str] = []
    peers = tuple(instances)
    stack = _stack(record, accelerator, assumed)
    layout = _layout(record, stack, assumed)
    offload = offload_of(record, stack, layout)
    micro_batch, grad_accum = _batch(record, layout, assumed)
    per_node, nodes = nodes_of(record, accelerator, peers, assumed)
    return StatedRun(
        site=Site(
            accelerator=accelerator,
            per_node=per_node,
            nodes=nodes,
            link_domain=link_domain(accelerator, per_node, nodes),
            intra_link=intra_link(accelerator, peers, per_node, assumed),
            inter_link=inter_link(record, peers, per_node, nodes, assumed),
        ),
        params=params_of(record, accelerator, stack, model_takes, assumed),
        setup=Setup(
            layout=layout,
            precision=precision_of(record, accelerator, stack, assumed),
            micro_batch=micro_batch,
            grad_accum=grad_accum,
            pipeline_passes=record.pipeline_passes or 1,
            recompute=recompute_of(record, stack, assumed),
            recompute_share=record.recompute_share or 1.0,
            stack=stack,
            compile=is_compiled(record, stack, assumed),
            autocast=uses_autocast(record, stack, layout, offload),
            optimizer=optimizer_of(record, assumed),
            software_date=record.software_date,
            features=features_of(record, accelerator, stack, assumed),
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
    if pipeline == 1 or stack != "megatron" or engine_of(record) is None:
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
