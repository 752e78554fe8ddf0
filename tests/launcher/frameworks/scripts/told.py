"""What the training scripts of these tests share: a model, its data, and telling how it went."""

import json
import os
import sys
from pathlib import Path

import torch


def make_model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))


def make_batch(rank: int, step: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a batch that differs by rank: only ranks that share gradients stay alike."""
    generator = torch.Generator().manual_seed(1000 * step + rank)
    inputs = torch.randn(size, 8, generator=generator)
    return inputs, inputs.sum(dim=1, keepdim=True)


def tell(model: torch.nn.Module, losses: list[float], **more: object) -> None:
    """Write what this rank saw into the folder that the first argument names."""
    checksum = sum(float(parameter.detach().double().sum()) for parameter in model.parameters())
    told = {
        "rank": int(os.environ["RANK"]),
        "world": int(os.environ["WORLD_SIZE"]),
        "arguments": sys.argv[2:],
        "first": sum(losses[:5]) / 5,
        "last": sum(losses[-5:]) / 5,
        "checksum": checksum,
        **more,
    }
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{told['rank']}.json").write_text(json.dumps(told))
