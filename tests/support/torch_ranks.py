"""What torch's own FSDP2 and tensor parallelism send and hold on rank 0, run without devices.

One process plays rank 0: torch's fake process group answers the collectives, fake CPU tensors stand
for the memory, and attention is the kernel a GPU would run. The second training step is traced, for
the first one initialises FSDP and the optimizer. Run as a program (a process group is global, and
must not leak into other tests): cases come as JSON on the command line, records go to stdout.
"""

from __future__ import annotations

import json
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from multiprocessing import get_context
from typing import Any
from unittest.mock import patch

import split_decoder
import torch
import torch._dynamo  # Eager code imports it on its first step: here once, not in each process.
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch._C._distributed_c10d import _resolve_process_group
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.distributed_c10d import GroupName
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor._sharding_prop import ShardingPropagator
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

Record = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Case:
    """One model on one arrangement of ranks."""

    params: dict[str, Any] = field(default_factory=dict)
    micro_batch: int = 2
    data: int = 1
    """Ranks of the data dimension; sharded by FSDP2 if there are more than one."""
    shard: int = 1
    """Ranks that share one copy of the parameters; fewer than `data` is hybrid sharding."""
    reshard: bool = True
    """Whether blocks give their gathered parameters back between forward and backward."""
    tensor: int = 1
    sequence_parallel: bool = False
    splits_vocabulary: bool = False
    splits_loss: bool = False
    """Whether the loss is computed on a rank's part of the vocabulary, not on gathered logits."""
    mixed: bool = False
    """fp32 parameters and reductions around bf16 compute; else everything is bf16."""
    recompute: bool = False
    """Whether every block is run again in the backward pass."""

    @property
    def ranks(self) -> int:
        """How many there are in all."""
        return self.data * self.tensor


def run(case: Case) -> Record:
    """Return the collectives and memory of rank 0 in one step."""
    dist.init_process_group("fake", rank=0, world_size=case.ranks, store=FakeStore())
    try:
        data, tensor = _meshes(case)
        with FakeTensorMode(allow_non_fake_inputs=True), _real_meshes(), _gpu_attention():
            return _trace_step(case, data, tensor)
    finally:
        dist.destroy_process_group()


def _meshes(case: Case) -> tuple[DeviceMesh | None, DeviceMesh | None]:
    """Return the data mesh and the tensor mesh; neighbours are ranks of one tensor group."""
    sizes = {"replicate": case.data // case.shard, "shard": case.shard, "tensor": case.tensor}
    kept = {name: size for name, size in sizes.items() if size > 1}
    mesh = init_device_mesh("cpu", tuple(kept.values()), mesh_dim_names=tuple(kept))
    data = tuple(name for name in kept if name != "tensor")
    if case.data > 1 and case.shard == 1:
        raise ValueError("replicas alone are DDP, which torch cannot trace on fake tensors")
    return mesh[data] if data else None, mesh["tensor"] if case.tensor > 1 else None


def _trace_step(case: Case, data: DeviceMesh | None, tensor: DeviceMesh | None) -> Record:
    with _default_dtype(torch.float32 if case.mixed else torch.bfloat16):
        sizes = {name: size for name, size in case.params.items() if name != "seq_len"}
        model = split_decoder.build_model(**sizes)
    if tensor is not None:
        split(model, tensor, case)
    if case.recompute:
        blocks: Any = model.get_submodule("blocks")
        for name, block in blocks.named_children():
            blocks.register_module(name, checkpoint_wrapper(block))
    if data is not None:
        _shard(model, data, case)
    # torch cannot step plain and distributed parameters in one foreach kernel.
    kinds = {isinstance(p, DTensor) for p in model.parameters()}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=len(kinds) == 1)
    sizes = {name: case.params[name] for name in ("vocab", "seq_len") if name in case.params}
    batch = split_decoder.make_batch(case.micro_batch, **sizes)
    parallel_loss = loss_parallel if case.splits_loss else nullcontext

    def step(phase: Callable[[str], None]) -> None:
        with parallel_loss():
            phase("forward")
            loss = split_decoder.compute_loss(model, batch)
            phase("backward")
            loss.backward()
        del loss
        phase("optimizer")
        optimizer.step()
        phase("end")
        optimizer.zero_grad()

    step(lambda _: None)
    trace = RankTrace()
    trace.label("parameters", map(local, model.parameters()))
    state = (local(t) for t in tree_leaves(optimizer.state) if isinstance(t, Tensor))
    trace.label("optimizer", (t for t in state if t.dim()))
    trace.label("inputs", batch)

    def enter(phase: str) -> None:
        if phase == "optimizer":
            held = (local(p.grad) for p in model.parameters() if p.grad is not None)
            trace.label("gradients", held)
        trace.phase = phase

    with trace, _unseen_propagation(trace):
        step(enter)
    return {"collectives": trace.collectives, **trace.memory()}


def split(model: nn.Module, mesh: DeviceMesh, case: Case) -> None:
    """Split a decoder as the tutorial of torch's tensor parallelism does.

    With sequence parallelism the residual stream lies in parts of the sequence, and each group of
    column layers gets its input gathered once; without, each column layer takes it whole.
    """
    block = block_plan(case)
    for each in model.get_submodule("blocks").children():
        parallelize_module(each, mesh, block)
    stream = Shard(1) if case.sequence_parallel else Replicate()
    root: dict[str, ParallelStyle] = {}
    if case.splits_vocabulary:
        root["embedding"] = RowwiseParallel(
            input_layouts=Replicate(), output_layouts=stream, use_local_output=True
        )
        root["head"] = ColwiseParallel(
            input_layouts=stream,
            output_layouts=Shard(-1) if case.splits_loss else Replicate(),
            use_local_output=not case.splits_loss,
        )
    if case.sequence_parallel:
        root["norm"] = SequenceParallel()
    parallelize_module(model, mesh, root)


def block_plan(case: Case) -> dict[str, ParallelStyle]:
    """Return how the layers of one block are split."""
    stream = Shard(1) if case.sequence_parallel else Replicate()
    columns = ["attention.query", "attention.key", "attention.value", "ffn.up", "ffn.gate"]
    if not case.params.get("gated"):
        columns.remove("ffn.gate")
    plan: dict[str, ParallelStyle] = {name: ColwiseParallel() for name in columns}
    plan |= {name: RowwiseParallel(output_layouts=stream) for name in ("attention.out", "ffn.down")}
    if case.sequence_parallel:
        gathered = PrepareModuleInput(
            input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)
        )
        plan |= {"attention": gathered, "ffn": gathered}
        plan |= {"attention_norm": SequenceParallel(), "ffn_norm": SequenceParallel()}
    return plan


def _shard(model: nn.Module, mesh: DeviceMesh, case: Case) -> None:
    """Shard each block and then the root, as torchtitan and the FSDP2 tutorial do."""
    policy = MixedPrecisionPolicy()
    if case.mixed:
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.get_submodule("blocks").children():
        fully_shard(block, mesh=mesh, mp_policy=policy, reshard_after_forward=case.reshard)
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


class RankTrace(TorchDispatchMode):
    """Records collectives, and the birth and death of every storage, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.phase = "before"
        self.paused = False
        self.events: list[tuple[Block, int]] = []
        self.collectives: list[Record] = []
        self._live: dict[int, tuple[Block, weakref.ref]] = {}

    def label(self, name: str, tensors: Iterable[Tensor]) -> None:
        """Say what the storages of these tensors hold; the last label given counts."""
        for tensor in tensors:
            self.track(tensor.untyped_storage()).label = name

    def track(self, storage: torch.UntypedStorage) -> Block:
        """Return the block of a storage, born now if it was not known."""
        key = storage._cdata
        if key in self._live:
            return self._live[key][0]
        block = Block(storage.nbytes(), self.phase)
        self.events.append((block, block.nbytes))
        self._live[key] = block, weakref.ref(storage, lambda _: self._free(key))
        return block

    def memory(self) -> Record:
        """Return bytes held throughout, and at the first moment of the largest total of a phase."""
        held: Counter[str] = Counter()
        peaks: dict[str, Record] = {}
        now = ""
        for block, change in self.events:
            held[block.category] += change
            now = block.born if change > 0 else (block.died or now)
            if sum(held.values()) > peaks.get(now, {"bytes": -1})["bytes"]:
                peaks[now] = {"bytes": sum(held.values()), "held": dict(held)}
        labels = ("parameters", "optimizer", "gradients", "inputs")
        state = {
            name: sum(b.nbytes for b, change in self.events if b.label == name and change > 0)
            for name in labels
        }
        return {"state_bytes": state, "peaks": peaks}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(each, DTensor) for each in types):
            return NotImplemented
        out = func(*args, **(kwargs or {}))
        if self.paused:
            return out
        for tensor in tree_leaves(out):
            if isinstance(tensor, Tensor) and tensor.untyped_storage().nbytes():
                self.track(tensor.untyped_storage())
        self._note_collective(func.name(), args, out)
        return out

    def _note_collective(self, op: str, args: Any, out: Any) -> None:
        kind = _KINDS.get(op)
        if kind is None:
            return
        tensors = [t for t in tree_leaves((args, out)) if isinstance(t, Tensor)]
        self.collectives.append(
            {
                "phase": self.phase,
                "kind": kind,
                "ranks": _group_size(args),
                "bytes": max(t.numel() * t.element_size() for t in tensors),
            }
        )

    def _free(self, key: int) -> None:
        block, _ = self._live.pop(key)
        block.died = self.phase
        self.events.append((block, -block.nbytes))

    def _resize(self, storage: torch.UntypedStorage, size: int) -> None:
        """Follow FSDP, which frees and allocates unsharded parameters by resizing storages."""
        if storage._cdata in self._live:
            self._free(storage._cdata)
        self._resize_storage(storage, size)
        if size:
            self.track(storage).label = "unsharded_parameters"

    def __enter__(self) -> RankTrace:
        self._resize_storage: Callable = torch.UntypedStorage.resize_
        torch.UntypedStorage.resize_ = lambda storage, size: self._resize(storage, size)  # pyright: ignore[reportAttributeAccessIssue]
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        torch.UntypedStorage.resize_ = self._resize_storage
        super().__exit__(*error)


_KINDS = {
    "c10d::_allgather_base_": "all_gather",
    "c10d::_reduce_scatter_base_": "reduce_scatter",
    "c10d::allreduce_": "all_reduce",
    "_c10d_functional::all_gather_into_tensor": "all_gather",
    "_c10d_functional::reduce_scatter_tensor": "reduce_scatter",
    "_c10d_functional::all_reduce": "all_reduce",
    "_c10d_functional::all_reduce_": "all_reduce",
    "_c10d_functional::all_to_all_single": "all_to_all",
}


def _group_size(args: Any) -> int:
    """Return the ranks of a collective's group: an object, or a name that comes last."""
    for each in reversed(tree_leaves(args)):
        if isinstance(each, str):
            return _resolve_process_group(GroupName(each)).size()
        if isinstance(each, torch.ScriptObject) and "ProcessGroup" in str(each._type()):
            return dist.ProcessGroup.unbox(each).size()
    raise AssertionError(args)


@contextmanager
def _unseen_propagation(trace: RankTrace) -> Iterator[None]:
    """Hide the whole-size tensors on which DTensor tries out an operation's shapes."""
    originals = {
        name: getattr(ShardingPropagator, name)
        for name in dir(ShardingPropagator)
        if name.startswith("_propagate_tensor_meta")
    }

    def quiet(original: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            before, trace.paused = trace.paused, True
            try:
                return original(*args, **kwargs)
            finally:
                trace.paused = before

        return run

    patches = [patch.object(ShardingPropagator, n, quiet(f)) for n, f in originals.items()]
    for each in patches:
        each.start()
    try:
        yield
    finally:
        for each in patches:
            each.stop()


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def _real_meshes() -> Iterator[None]:
    """Make device meshes of real tensors: FSDP2 joins meshes while the model's tensors are fake."""
    original = DeviceMesh.__init__

    def init(*args: Any, **kwargs: Any) -> None:
        with unset_fake_temporarily():
            original(*args, **kwargs)

    with patch.object(DeviceMesh, "__init__", init):
        yield


@contextmanager
def _gpu_attention() -> Iterator[None]:
    """Run attention as one flash kernel, as a GPU does at 16 bits."""

    def flash(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> Tensor:
        return torch.ops.aten._scaled_dot_product_flash_attention(
            query, key, value, 0.0, options["is_causal"], False, scale=query.shape[-1] ** -0.5
        )[0]

    with patch.object(F, "scaled_dot_product_attention", flash):
        yield


def local(tensor: Any) -> Tensor:
    """Return this rank's part of a distributed tensor, or the tensor itself."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def main() -> None:
    """Run the cases of the command line and print their records by name.

    Each in a process of its own, for DTensor remembers groups of meshes that look alike.
    """
    cases = {name: Case(**fields) for name, fields in json.loads(sys.argv[1]).items()}
    with get_context("fork").Pool(2, maxtasksperchild=1) as pool:
        records = pool.map(run, cases.values(), chunksize=1)
    print(json.dumps(dict(zip(cases, records, strict=True))))


def as_argument(cases: dict[str, Case]) -> str:
    """Return cases as the command line takes them."""
    return json.dumps({name: asdict(case) for name, case in cases.items()})


if __name__ == "__main__":
    main()
