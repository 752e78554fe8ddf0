"""What a process holds beside its tensors."""

import pytest

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.catalog.units import MIB
from gpuplan.planner.memory.framework_memory import (
    MULTIPLYING_THREADS,
    context_bytes,
    framework_bytes,
    workspace_bytes,
)
from gpuplan.planner.plan.layout import Layout
from gpuplan.planner.plan.setup import Setup
from gpuplan.planner.predict.kept.model_cache import ModelCache
from gpuplan.planner.predict.memory.peak_memory import pooled_bytes
from gpuplan.profiles.profile import Profile

DEVICES = load_catalogue().accelerators
SETUP = Setup(layout=Layout(), precision="bf16-amp", micro_batch=4)


@pytest.mark.parametrize(("name", "mib"), [("A100-80GB-SXM", 8.125), ("H100-80GB-SXM", 32)])
def test_each_thread_that_multiplies_has_a_workspace(name: str, mib: float) -> None:
    device = DEVICES[name]
    assert workspace_bytes(device) == mib * MIB
    beside = framework_bytes(device, communicators=0) - context_bytes(device)
    assert beside == MULTIPLYING_THREADS * mib * MIB


def test_workspaces_are_in_the_pool_since_torch_2(toy: Profile) -> None:
    cache, device = ModelCache(toy), DEVICES["H100-80GB-SXM"]

    def pooled(**how: object) -> int:
        return pooled_bytes(cache, device, Setup(**{**vars(SETUP), **how}))  # pyright: ignore[reportArgumentType]

    assert "gemm" in cache.kinds
    assert pooled() == pooled(software_date=(2023, 3)) == 64 * MIB
    assert pooled(software_date=(2022, 12)) == pooled(stack="xla") == 0
