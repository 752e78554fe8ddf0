"""Write what torch's own `fully_shard` sends and holds per rank, traced without any accelerator.

One process stands for rank 0 of many: torch's fake process group answers the collectives, fake
tensors stand for the memory. The second training step is traced (the first one initialises FSDP and
the optimizer); of a step of several micro-batches it is all of them, under what gpuplan's runner
says between them. The planner's closed formulas are tested against these files; their meaning, key
by key, is in tests/planner/parallelism/fsdp_golden/README.md.

    python benchmarks/trace_fully_shard.py                 # rewrite every golden file
    python benchmarks/trace_fully_shard.py gpt2-16-bf16-reshard --out-dir /tmp/golden
"""

from __future__ import annotations

import argparse
import json
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from gpuplan.examples import decoder
from gpuplan.launcher.runner.job import Execution
from gpuplan.launcher.runner.parallel.parallelize import micro_batch_sync
from gpuplan.planner.plan.layout import Layout

GOLDEN = Path(__file__).parents[1] / "tests" / "planner" / "parallelism" / "fsdp_golden"
MODELS: dict[str, dict[str, Any]] = {
    # Biases, tied head and a vocabulary that no number of ranks divides: every padding rule.
    "gpt2": {
        "layers": 12,
        "hidden": 768,
        "heads": 12,
        "kv_heads": 12,
        "ffn": 3072,
        "ffn_kind": "gelu",
        "vocab": 50257,
        "seq_len": 1024,
        "tied_embeddings": True,
    },
    "llama-1b": {
        "layers": 22,
        "hidden": 2048,
        "heads": 32,
        "kv_heads": 4,
        "ffn": 5632,
        "ffn_kind": "swiglu",
        "vocab": 32000,
        "seq_len": 2048,
        "tied_embeddings": False,
    },
    "llama-8b": {
        "layers": 32,
        "hidden": 4096,
        "heads": 32,
        "kv_heads": 8,
        "ffn": 14336,
        "ffn_kind": "swiglu",
        "vocab": 128256,
        "seq_len": 4096,
        "tied_embeddings": False,
    },
}
# Held only because parameters are sharded; everything else a rank holds without FSDP as well.
SHARDING_BUFFERS = (
    "unsharded_parameters",
    "all_gather_inputs",
    "all_gather_outputs",
    "unsharded_gradients",
    "reduce_scatter_inputs",
    "reduce_scatter_outputs",
)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One way to shard one model; each of `replicas` is sharded over its part of the ranks."""

    model: str
    ranks: int
    replicas: int = 1
    mixed_precision: bool
    reshard_after_forward: bool
    micro_batch: int = 1
    grad_accum: int = 1

    @property
    def name(self) -> str:
        """Return the file name of the case, without its ending."""
        ranks = self.ranks if self.replicas == 1 else f"{self.replicas}x{self.shard}"
        precision = "bf16" if self.mixed_precision else "fp32"
        reshard = "reshard" if self.reshard_after_forward else "keep"
        times = f"-{self.grad_accum}-times" if self.grad_accum > 1 else ""
        return f"{self.model}-{ranks}-{precision}-{reshard}{times}"

    @property
    def shard(self) -> int:
        """Return how many ranks share one copy of the parameters."""
        return self.ranks // self.replicas

    @property
    def execution(self) -> Execution:
        """Return how gpuplan's runner would run it: it says what a micro-batch leaves for the next.

        Only where a step has several; one alone is torch's default.
        """
        stage = 3 if self.reshard_after_forward else 2
        return Execution(
            layout=Layout(data=self.ranks, shard=self.shard, zero_stage=stage),
            precision="bf16-amp" if self.mixed_precision else "fp32",
            micro_batch=self.micro_batch,
            grad_accum=self.grad_accum,
        )


def all_cases() -> Iterator[Case]:
    """Yield full sharding of every model at 16 and 64 ranks, and hybrid sharding of one model."""
    choices = (True, False)
    for model, ranks, mixed, reshard in product(MODELS, (16, 64), choices, choices):
        yield Case(model=model, ranks=ranks, mixed_precision=mixed, reshard_after_forward=reshard)
    for mixed in choices:
        yield Case(
            model="llama-1b",
            ranks=16,
            replicas=2,
            mixed_precision=mixed,
            reshard_after_forward=True,
        )
    for mixed, reshard in product(choices, choices):
        yield Case(
            model="gpt2",
            ranks=16,
            mixed_precision=mixed,
            reshard_after_forward=reshard,
            grad_accum=3,
        )


CASES = {case.name: case for case in all_cases()}


def main() -> None:
    write_golden(
        "Trace torch's fully_shard and write golden files.",
        {name: lambda case=case: to_json(trace(case)) for name, case in CASES.items()},
        GOLDEN,
    )


def write_golden(description: str, cases: Mapping[str, Callable[[], str]], folder: Path) -> None:
    """Write the golden files that the command line asks for.

    Args:
        description: of the command.
        cases: what each file holds, by its name without the ending.
        folder: where they lie, unless the command line says otherwise.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("cases", nargs="*", metavar="CASE", help="default: all")
    parser.add_argument("--out-dir", type=Path, default=folder)
    options = parser.parse_args()
    if unknown := set(options.cases) - cases.keys():
        parser.error(f"no such case: {', '.join(sorted(unknown))}; known: {', '.join(cases)}")
    options.out_dir.mkdir(parents=True, exist_ok=True)
    for name in options.cases or cases:
        path = options.out_dir / f"{name}.json"
        path.write_text(cases[name]())
        print(path)


def trace(case: Case) -> dict[str, Any]:
    """Return the golden record of one case: its configuration, collectives and memory."""
    dist.init_process_group("fake", rank=0, world_size=case.ranks, store=FakeStore())
    try:
        mesh = init_device_mesh("cpu", (case.ranks,))
        if case.replicas > 1:
            mesh = init_device_mesh(
                "cpu", (case.replicas, case.shard), mesh_dim_names=("replicate", "shard")
            )
        with FakeTensorMode(allow_non_fake_inputs=True):
            return trace_second_step(case, mesh)
    finally:
        dist.destroy_process_group()


def trace_second_step(case: Case, mesh: DeviceMesh) -> dict[str, Any]:
    params = MODELS[case.model]
    model = decoder.build_model(**params)
    parameters = sum(p.numel() for p in model.parameters())
    shard(model, case, mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    batch = decoder.make_batch(case.micro_batch, params["vocab"], params["seq_len"])

    decoder.compute_loss(model, batch).backward()
    optimizer.step()
    optimizer.zero_grad()

    step = StepTrace()
    step.label("parameters", map(local, model.parameters()))
    step.label("optimizer", (local(t) for t in tree_leaves(optimizer.state) if is_tensor(t)))
    step.label("inputs", [*batch, *model.buffers()])
    with step:
        for number in range(case.grad_accum):
            is_last = number == case.grad_accum - 1
            with micro_batch_sync(model, case.execution, batch, is_last=is_last):
                step.phase = "forward"
                loss = decoder.compute_loss(model, batch)
                step.phase = "backward"
                loss.backward()
                del loss
            grads = (local(p.grad) for p in model.parameters() if p.grad is not None)
            step.label("gradients", grads)
        step.phase = "end"

    held = step.live_bytes(len(step.events))
    return {
        "torch": torch.__version__.split("+")[0],
        "model": "decoder.py",
        "params": params,
        "parameters": parameters,
        "micro_batch": case.micro_batch,
        "grad_accum": case.grad_accum,
        "ranks": case.ranks,
        "shard": case.shard,
        "param_dtype": "bfloat16" if case.mixed_precision else "float32",
        "reduce_dtype": "float32",
        "reshard_after_forward": case.reshard_after_forward,
        "optimizer": "AdamW, fused",
        "persistent_bytes": {
            name: held[name] for name in ("parameters", "gradients", "optimizer", "inputs")
        },
        "peak": step.peak(lambda held: sum(held.values())),
        "sharding_buffers_peak": step.peak(
            lambda held: sum(held[name] for name in SHARDING_BUFFERS)
        ),
        "collectives": step.collectives,
    }


def shard(model: torch.nn.Module, case: Case, mesh: DeviceMesh) -> None:
    """Shard each block and then the root, as torchtitan and the FSDP2 tutorial do."""
    policy = MixedPrecisionPolicy()
    if case.mixed_precision:
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.get_submodule("blocks").children():
        fully_shard(
            block,
            mesh=mesh,
            mp_policy=policy,
            reshard_after_forward=case.reshard_after_forward,
        )
    # Left to torch's default, the root keeps its parameters from forward to backward.
    fully_shard(model, mesh=mesh, mp_policy=policy)


@dataclass
class Block:
    """One allocation: what it holds, and the phases in which it was born and died."""

    nbytes: int
    born: str
    died: str | None = None
    label: str | None = None

    @property
    def category(self) -> str:
        """Return what the block holds, by its label or else by when it lived."""
        if self.label:
            return self.label
        return "activations" if (self.born, self.died) == ("forward", "backward") else "temporary"


class StepTrace(TorchDispatchMode):
    """Records collectives, and the birth and death of every storage, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.phase = "before"
        self.events: list[tuple[Block, int]] = []
        self.collectives: list[dict[str, Any]] = []
        self.live: dict[int, tuple[Block, weakref.ref]] = {}

    def label(self, name: str, tensors: Iterable[Tensor]) -> None:
        """Say what the storages of these tensors hold; the last label given counts."""
        for tensor in tensors:
            self.track(tensor.untyped_storage()).label = name

    def track(self, storage: torch.UntypedStorage) -> Block:
        """Return the block of a storage, born now if it was not known."""
        key = storage._cdata
        if key in self.live:
            return self.live[key][0]
        block = Block(storage.nbytes(), self.phase)
        self.events.append((block, block.nbytes))
        self.live[key] = block, weakref.ref(storage, lambda _: self.free(key))
        return block

    def free(self, key: int) -> None:
        """Note the death of a storage."""
        block, _ = self.live.pop(key)
        block.died = self.phase
        self.events.append((block, -block.nbytes))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        inputs = [t for t in tree_leaves((args, kwargs)) if is_tensor(t)]
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if is_tensor(tensor) and not tensor.is_meta and tensor.untyped_storage().nbytes():
                self.track(tensor.untyped_storage())
        self.note_sharding(func.name(), inputs)
        return out

    def note_sharding(self, op: str, tensors: list[Tensor]) -> None:
        """Log a collective, and label the buffers by the FSDP operation that they pass through."""
        if op == "c10d::_allgather_base_":
            self.log("all_gather_into_tensor", output=tensors[0], input=tensors[1])
            self.label("all_gather_outputs", tensors[:1])
        elif op == "c10d::_reduce_scatter_base_":
            self.log("reduce_scatter_tensor", output=tensors[0], input=tensors[1])
            self.label("reduce_scatter_outputs", tensors[:1])
            self.label("reduce_scatter_inputs", tensors[1:2])
        elif op == "c10d::allreduce_":
            self.log("all_reduce", output=tensors[0], input=tensors[0])
        elif op == "fsdp::all_gather_copy_in":
            fresh = (t for t in tensors if self.track(t.untyped_storage()).label is None)
            self.label("all_gather_inputs", fresh)
        elif op == "fsdp::chunk_cat":
            self.label("unsharded_gradients", tensors[:-1])

    def log(self, kind: str, output: Tensor, input: Tensor) -> None:
        """Note one collective with the bytes this rank gives and gets."""
        self.collectives.append(
            {
                "phase": self.phase,
                "kind": kind,
                "dtype": str(input.dtype).removeprefix("torch."),
                "in_bytes": input.numel() * input.element_size(),
                "out_bytes": output.numel() * output.element_size(),
            }
        )

    def resize(self, storage: torch.UntypedStorage, size: int) -> None:
        """Follow FSDP, which frees and allocates unsharded parameters by resizing storages."""
        key = storage._cdata
        if key in self.live:
            self.free(key)
        self.resize_storage(storage, size)
        if size:
            self.track(storage).label = "unsharded_parameters"

    def __enter__(self) -> StepTrace:
        self.resize_storage: Callable = torch.UntypedStorage.resize_
        torch.UntypedStorage.resize_ = lambda storage, size: self.resize(storage, size)  # pyright: ignore[reportAttributeAccessIssue]
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        torch.UntypedStorage.resize_ = self.resize_storage
        super().__exit__(*error)

    def live_bytes(self, events: int) -> Counter[str]:
        """Return the bytes held in each category after so many events."""
        held: Counter[str] = Counter()
        for block, change in self.events[:events]:
            held[block.category] += change
        return held

    def peak(self, size: Callable[[Counter[str]], int]) -> dict[str, Any]:
        """Return the first moment at which `size` of the held bytes is largest."""
        held: Counter[str] = Counter()
        best, at = -1, 0
        for index, (block, change) in enumerate(self.events, start=1):
            held[block.category] += change
            if (now := size(held)) > best:
                best, at = now, index
        phase = self.events[at - 1][0].born
        by_category = {name: n for name, n in sorted(self.live_bytes(at).items()) if n}
        return {"bytes": best, "phase": phase, "by_category_bytes": by_category}


def is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor)


def local(tensor: Any) -> Tensor:
    """Return this rank's part of a sharded tensor, or the tensor itself."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def to_json(record: dict[str, Any]) -> str:
    """Return the record with one collective a line, so that differences are readable."""
    collectives = ",\n".join(f"    {json.dumps(each)}" for each in record["collectives"])
    head = json.dumps({**record, "collectives": []}, indent=2)
    return head.replace('"collectives": []', f'"collectives": [\n{collectives}\n  ]') + "\n"


if __name__ == "__main__":
    main()
