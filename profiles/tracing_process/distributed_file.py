"""The fix for a file that builds its model for several processes, which a trace has not.

Here and not beside the other failures: what is there changes the key of every kept Profile.
"""

from __future__ import annotations

from ...catalog.errors import GpuplanError

NO_PROCESSES = (
    "using env:// rendezvous",
    "Default process group has not been initialized",
    "FSDP needs a non-CPU accelerator",
)
"""Of what torch.distributed says where nobody started the processes (torch 2.13)."""
FIX = (
    "leave out of build_model() what lays the model out over processes (fully_shard,"
    " FullyShardedDataParallel, DistributedDataParallel, init_process_group): gpuplan plans the"
    " layout itself, and `gpuplan run` carries it out."
)


def with_distributed_fix(error: GpuplanError) -> GpuplanError:
    """Return the error of a user's file, with the fix where it asked for other processes."""
    if not any(text in error.message for text in NO_PROCESSES):
        return error
    return type(error)(error.message, fix=FIX)
