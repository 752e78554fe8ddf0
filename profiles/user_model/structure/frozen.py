"""Parameters that training does not change: their number, and a storage of their own.

Needs only the standard library and torch, because the runner carries this file to the instances.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from ..lora import is_linear, output_head


def cast_frozen(model: nn.Module, dtype: torch.dtype) -> None:
    """Keep the frozen floating-point parameters of a model in another dtype; tied ones stay tied.

    What is trained, and buffers, stay as they are: adapters in fp32 on a 16-bit base, as peft's
    `autocast_adapter_dtype` leaves them.
    """
    for parameter in model.parameters():
        if not parameter.requires_grad and parameter.is_floating_point():
            parameter.data = parameter.data.to(dtype)


def frozen_linear_weights(model: nn.Module) -> Iterator[torch.Tensor]:
    """Yield the weights that 4-bit loading quantises, each once (`profile.FrozenLinears`).

    The output head stays as it is: the one that the model names, else its last linear layer. So
    does a weight that is the one of an embedding too (tied).
    """
    layers = [one for one in model.modules() if is_linear(one)]
    head = output_head(model) or (layers[-1] if layers else None)
    embedded = {id(one.weight) for one in model.modules() if isinstance(one, nn.Embedding)}
    seen: set[int] = set()
    for layer in layers:
        weight = layer.weight
        assert isinstance(weight, torch.Tensor)
        if layer is head or weight.requires_grad or id(weight) in embedded | seen:
            continue
        seen.add(id(weight))
        yield weight
