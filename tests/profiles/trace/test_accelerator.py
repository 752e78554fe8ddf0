"""`torch.accelerator` says what `torch.cuda` says, whatever torch was built for."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from traced_mlp import WIDTH, workload

from gpuplan.profiles.trace.trace import trace_workload


def no_driver(*_: Any) -> Any:
    """Fail as a build for CUDA does on a machine without a driver."""
    raise RuntimeError("CUDA driver version is insufficient for CUDA runtime version")


def asks_for_the_accelerator(model: nn.Module, batch: Any) -> Any:
    device = torch.accelerator.current_accelerator(check_available=True)
    assert device is not None and device.type == "cuda"
    assert torch.accelerator.is_available() and torch.accelerator.device_count() == 1
    with torch.accelerator.device_index(0):
        inputs = batch[0].to(device)
    torch.accelerator.synchronize()
    assert not torch.accelerator.current_stream().is_capturing()
    assert torch.accelerator.max_memory_allocated() == 0
    return model(inputs).square().mean()


def plain(model: nn.Module, batch: Any) -> Any:
    return model(batch[0]).square().mean()


def adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters)


def test_a_build_for_cuda_needs_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Adam asks for the stream at every step: no file could be traced on a laptop."""
    usual = trace_workload(workload(compute_loss=plain, build_optimizer=adam), numerics=["fp32"])
    monkeypatch.setattr(
        torch._C, "_accelerator_getAccelerator", lambda: torch.device("cuda"), raising=False
    )
    for name in ("getDeviceIndex", "setDeviceIndex", "getStream", "synchronizeDevice"):
        monkeypatch.setattr(torch._C, f"_accelerator_{name}", no_driver, raising=False)
    for loss in (plain, asks_for_the_accelerator):
        asking = workload(compute_loss=loss, build_optimizer=adam)
        profile = trace_workload(asking, numerics=["fp32"])
        assert profile.steps[0].segments == usual.steps[0].segments


def test_a_loader_pins_its_batches_without_a_device() -> None:
    def make_batch(batch_size: int) -> Any:
        data = TensorDataset(
            torch.randn(2 * batch_size, WIDTH), torch.randint(4, (2 * batch_size,))
        )
        return tuple(next(iter(DataLoader(data, batch_size, pin_memory=True))))

    usual = trace_workload(workload(), numerics=["fp32"])
    pinned = trace_workload(workload(make_batch=make_batch), numerics=["fp32"])
    assert pinned.steps[0].segments == usual.steps[0].segments
