"""The lines that keep something in host memory in a training loop of the user's own.

`gpuplan run` keeps nothing there, so that the option alone is not what to write. Names are those of
torch 2.13 (torch.distributed.fsdp), DeepSpeed 0.19 (`zero_optimization`) and torchtune.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...catalog.vocabulary import Offloaded
from ..offload.host_memory import ordered
from ..plan.layout import Layout

NOT_RUN = "# --offload {} asks estimate, fits and advise for it; `gpuplan run` has no offload"
ACTIVATIONS = (
    "with torchtune.training.OffloadActivations(): loss = …",
    "# its copies run beside the kernels, as counted; those of torch's own, slower, do not:",
    "# with torch.autograd.graph.save_on_cpu(pin_memory=True): loss = …",
)


def offload_lines(
    offload: frozenset[Offloaded], now: frozenset[Offloaded], layout: Layout
) -> tuple[str, ...]:
    """Return the lines that keep so much in host memory, or that no longer do.

    Args:
        offload: what is to be kept there.
        now: what is today.
        layout: of the ranks.
    """
    if not offload:
        return (f"# leave out what keeps {' and '.join(ordered(now))} in host memory",)
    return (*_lines(offload, layout), NOT_RUN.format(",".join(ordered(offload))))


def _lines(offload: frozenset[Offloaded], layout: Layout) -> Iterator[str]:
    if "parameters" in offload:
        yield "fully_shard(block, offload_policy=CPUOffloadPolicy())  # every block, then the model"
        yield "# their gradients and the optimizer go with the parameters"
    elif "optimizer" in offload:
        yield "# DeepSpeed's configuration; no loop of torch's own keeps the optimizer alone there:"
        host = '"offload_optimizer": {"device": "cpu", "pin_memory": true}'
        yield f'"zero_optimization": {{"stage": {max(1, layout.zero_stage)}, {host}}}'
    if "activations" in offload:
        yield from ACTIVATIONS
