"""Low-rank adapters beside the layers of a model whose own parameters are frozen.

Needs only the standard library and torch, because the runner carries this file to the instances.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor, nn

from ...catalog.errors import UsageError, did_you_mean
from .lora_settings import ALL_LINEAR, LoraSettings

MOST_NAMES_SHOWN = 12


class LowRankAdapter(nn.Module):
    """A frozen layer plus `alpha / rank` times a trainable product of two thin matrices.

    Takes and returns what the layer does: (…, in_features) → (…, out_features). Source: Hu et al.
    2021 (arXiv:2106.09685, section 4.1): the second matrix starts at zero.
    """

    def __init__(self, base: nn.Module, settings: LoraSettings) -> None:
        super().__init__()
        into, out = features_of(base)
        weight = base.weight
        assert isinstance(weight, Tensor)
        like = {"device": weight.device, "dtype": weight.dtype}
        self.base = base
        self.down = nn.Linear(into, settings.rank, bias=False, **like)
        self.up = nn.Linear(settings.rank, out, bias=False, **like)
        self.scale = settings.alpha / settings.rank
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's output with what the adapter adds."""
        return self.base(x) + self.up(self.down(x)) * self.scale


def add_adapters(model: nn.Module, settings: LoraSettings) -> None:
    """Freeze a model and put an adapter beside every layer that the settings name.

    Raises:
        UsageError: no layer has such a name, or one that has it is not a linear layer.
    """
    found = list(_targets(model, settings))
    model.requires_grad_(False)
    for path in found:
        parent, _, name = path.rpartition(".")
        holder = model.get_submodule(parent)
        setattr(holder, name, LowRankAdapter(model.get_submodule(path), settings))


def is_linear(module: nn.Module) -> bool:
    """Return whether a module is a linear layer, GPT-2's transposed one (Conv1D) included."""
    return isinstance(module, nn.Linear) or type(module).__name__ == "Conv1D"


def features_of(layer: nn.Module) -> tuple[int, int]:
    """Return (features in, features out) of a linear layer."""
    weight = layer.weight
    assert isinstance(weight, Tensor)
    rows, columns = weight.shape
    return (columns, rows) if isinstance(layer, nn.Linear) else (rows, columns)


def output_head(model: nn.Module) -> nn.Module | None:
    """Return the layer that makes logits of a language model; None where a model has none."""
    own = getattr(model, "get_output_embeddings", None)
    head = own() if callable(own) else None
    return head if isinstance(head, nn.Module) else None


def _targets(model: nn.Module, settings: LoraSettings) -> Iterator[str]:
    """Yield the paths of the layers that get an adapter, each name checked to have one."""
    linears = {path: one for path, one in model.named_modules() if is_linear(one)}
    if settings.targets == (ALL_LINEAR,):
        head = output_head(model)
        yield from (path for path, one in linears.items() if one is not head)
        return
    for target in settings.targets:
        if not any(_is_named(path, target) for path in linears):
            raise _no_such_layer(model, target, sorted({_last(path) for path in linears}))
    yield from (p for p in linears if any(_is_named(p, one) for one in settings.targets))


def _is_named(path: str, target: str) -> bool:
    return path == target or path.endswith(f".{target}")


def _last(path: str) -> str:
    return path.rpartition(".")[2]


def _no_such_layer(model: nn.Module, target: str, names: list[str]) -> UsageError:
    others = [path for path, _ in model.named_modules() if _is_named(path, target)]
    what = "is not a linear layer" if others else "is no layer"
    shown = ", ".join(names[:MOST_NAMES_SHOWN]) + (", …" if len(names) > MOST_NAMES_SHOWN else "")
    return UsageError(
        f"--lora: {target} {what} of {type(model).__name__}.{did_you_mean(target, names)}",
        fix=f"its linear layers are {shown}: name some with targets=…+…, or write"
        f" targets={ALL_LINEAR}.",
    )
