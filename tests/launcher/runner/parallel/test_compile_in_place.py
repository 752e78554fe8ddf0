"""What a plan that compiles says is compiled, is."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters

from gpuplan.launcher.runner.parallel.parallelize import compile_in_place


class Own(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x).relu()


@pytest.mark.parametrize(
    "make",
    [
        Own,
        lambda: nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1)),
        lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True),
    ],
    ids=["own", "sequential", "torch's block"],
)
def test_a_module_is_compiled_whole_with_the_same_result_and_names(
    make: Callable[[], nn.Module],
) -> None:
    module, batch = make(), torch.randn(2, 4, 8)
    names, plain = list(module.state_dict()), module(batch)
    torch.compiler.reset()
    counters.clear()

    # The graphs are torch's; to compile them for processors takes half a minute.
    compile_in_place(module, "eager")
    found = module(batch)

    assert counters["stats"]["unique_graphs"] == 1
    assert torch.allclose(found, plain, atol=1e-6)
    found.sum().backward()
    assert list(module.state_dict()) == names
    assert all(one.grad is not None for one in module.parameters())
