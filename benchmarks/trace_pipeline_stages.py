"""Write what a stage of torch's pipelines holds where FSDP shards it, without any accelerator.

As `trace_fully_shard.py`, for one rank of one pipeline stage as the runner builds it: blocks and
root sharded over the data ranks, torch's own schedule, the runner's receive buffers. The planner's
formulas (planner/memory/stages/whole.py) are tested against these files.

    python benchmarks/trace_pipeline_stages.py                # rewrite every golden file
    python benchmarks/trace_pipeline_stages.py stage1of4-8 --out-dir /tmp/golden
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.pipelining import Schedule1F1B, ScheduleInterleaved1F1B
from torch.distributed.pipelining import schedules as torch_schedules
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._pytree import tree_leaves
from trace_fully_shard import StepTrace, is_tensor, local, write_golden

from gpuplan.examples import decoder
from gpuplan.launcher.runner.pipeline.receiving import ReceivingStage

GOLDEN = Path(__file__).parents[1] / "tests" / "planner" / "memory" / "stages" / "golden"
PARAMS: dict[str, Any] = {
    "layers": 8,
    "hidden": 512,
    "heads": 8,
    "kv_heads": 4,
    "ffn": 2048,
    "ffn_kind": "swiglu",
    "vocab": 4000,
    "seq_len": 256,
    "tied_embeddings": False,
}
POLICY = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One stage of a pipeline, and how many micro-batches of one sample a step has."""

    stage: int
    pipeline: int
    micro_batches: int
    virtual_stages: int = 1
    data: int = 4

    @property
    def name(self) -> str:
        """Return the file name of the case, without its ending."""
        chunks = f"x{self.virtual_stages}" if self.virtual_stages > 1 else ""
        return f"stage{self.stage}of{self.pipeline}{chunks}-{self.micro_batches}"


CASES = {
    case.name: case
    for case in (
        Case(stage=0, pipeline=4, micro_batches=8),
        Case(stage=1, pipeline=4, micro_batches=8),
        Case(stage=1, pipeline=4, micro_batches=32),
        Case(stage=3, pipeline=4, micro_batches=8),
        Case(stage=1, pipeline=2, virtual_stages=2, micro_batches=2),
        Case(stage=1, pipeline=2, virtual_stages=2, micro_batches=4),
    )
}


class Chunk(nn.Module):
    """Some blocks of a decoder; the first has its embedding too, the last its norm and head."""

    def __init__(self, model: nn.Module, begin: int, end: int) -> None:
        super().__init__()
        blocks = list(model.get_submodule("blocks").children())
        self.embedding = model.get_submodule("embedding") if begin == 0 else None
        self.blocks = nn.ModuleList(blocks[begin:end])
        is_last = end == len(blocks)
        self.norm = model.get_submodule("norm") if is_last else None
        self.head = model.get_submodule("head") if is_last else None
        self.register_buffer("rotary", model.get_buffer("rotary"), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the residual stream of the next chunk, or the logits."""
        x = x if self.embedding is None else self.embedding(x)
        for block in self.blocks:
            x = block(x, self.rotary)
        return x if self.norm is None or self.head is None else self.head(self.norm(x))


def main() -> None:
    write_golden(
        "Trace a pipeline stage and write golden files.",
        {
            name: lambda case=case: json.dumps(trace(case), indent=2) + "\n"
            for name, case in CASES.items()
        },
        GOLDEN,
    )


def trace(case: Case) -> dict[str, Any]:
    """Return the golden record of one case: its configuration, collectives and memory."""
    # Nothing is sent, so no two stages can agree on the shapes: they are given instead.
    schedules: Any = torch_schedules
    static = schedules.InferenceMode.STATIC

    def agreed(_self: Any, stages: list[Any], *_others: Any) -> None:
        for stage in stages:
            stage._inference_mode = static

    schedules._PipelineSchedule._warmup_p2p = agreed
    rank, world = case.stage * case.data, case.pipeline * case.data
    dist.init_process_group("fake", rank=rank, world_size=world, store=FakeStore())
    try:
        names = ("pipeline", "shard")
        mesh = init_device_mesh("cpu", (case.pipeline, case.data), mesh_dim_names=names)
        with FakeTensorMode(allow_non_fake_inputs=True):
            return trace_second_step(case, mesh)
    finally:
        dist.destroy_process_group()


def trace_second_step(case: Case, mesh: DeviceMesh) -> dict[str, Any]:
    modules = chunks_of(case, mesh)
    parameters = [one for module in modules for one in module.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, fused=True)
    schedule = schedule_of(case, modules, mesh)
    tokens, targets = decoder.make_batch(
        case.micro_batches, PARAMS["vocab"], seq_len=PARAMS["seq_len"]
    )
    given = (tokens,) if case.stage == 0 else ()
    wanted: dict[str, Any] = {"target": targets} if case.stage == case.pipeline - 1 else {}

    def step() -> None:
        schedule.step(*given, return_outputs=False, **wanted)

    step()
    optimizer.step()
    optimizer.zero_grad()
    traced = StepTrace()
    traced.label("parameters", map(local, parameters))
    traced.label("optimizer", (local(t) for t in tree_leaves(optimizer.state) if is_tensor(t)))
    traced.label("inputs", [tokens, targets, *(b for one in modules for b in one.buffers())])
    with traced:
        traced.phase = "step"
        step()
        traced.label("gradients", (local(p.grad) for p in parameters if p.grad is not None))
        traced.phase = "end"
    return {
        "torch": torch.__version__.split("+")[0],
        "model": "decoder.py",
        "params": PARAMS,
        "stage": case.stage,
        "pipeline": case.pipeline,
        "virtual_stages": case.virtual_stages,
        "micro_batches": case.micro_batches,
        "shard": case.data,
        "parameters": sum(one.numel() for one in map(local, parameters)) * case.data,
        "peak": traced.peak(lambda held: sum(held.values())),
        "collectives": Counter(each["kind"] for each in traced.collectives),
    }


def numbers_of(case: Case) -> range:
    """Return which chunks of the model the stage has."""
    return range(case.stage, case.pipeline * case.virtual_stages, case.pipeline)


def chunks_of(case: Case, mesh: DeviceMesh) -> list[Chunk]:
    """Return the chunks of the stage, each block and then the rest sharded as the runner does."""
    model = decoder.build_model(**PARAMS)
    layers = PARAMS["layers"] // (case.pipeline * case.virtual_stages)
    modules = [Chunk(model, n * layers, (n + 1) * layers) for n in numbers_of(case)]
    for module in modules:
        for part in (*module.blocks, module):
            fully_shard(part, mesh=mesh["shard"], mp_policy=POLICY, reshard_after_forward=False)
    return modules


def schedule_of(case: Case, modules: Sequence[Chunk], mesh: DeviceMesh) -> Any:
    """Return torch's schedule of the stage, interleaved where it has several chunks."""
    chunks = case.pipeline * case.virtual_stages
    pairs = zip(modules, numbers_of(case), strict=True)
    stages = [stage_of(module, number, chunks, mesh) for module, number in pairs]
    how: dict[str, Any] = {
        "n_microbatches": case.micro_batches,
        "scale_grads": False,
        "loss_fn": loss,
    }
    if len(stages) > 1:
        return ScheduleInterleaved1F1B([*stages], **how)
    return Schedule1F1B(stages[0], **how)


def stage_of(module: Chunk, number: int, chunks: int, mesh: DeviceMesh) -> ReceivingStage:
    """Return the pipeline stage of a chunk, which is told the shapes of what it gets and gives."""
    length, hidden, vocab = (PARAMS[name] for name in ("seq_len", "hidden", "vocab"))
    stream = torch.zeros(1, length, hidden, dtype=torch.bfloat16, requires_grad=True)
    tokens = torch.zeros(1, length, dtype=torch.long)
    logits = torch.zeros(1, length, vocab, dtype=torch.bfloat16)
    return ReceivingStage(
        module,
        number,
        chunks,
        torch.device("cpu"),
        input_args=(tokens if number == 0 else stream,),
        output_args=(logits if number == chunks - 1 else stream,),
        group=mesh["pipeline"].get_group(),
    )


def loss(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


if __name__ == "__main__":
    main()
