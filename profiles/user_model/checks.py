"""What a user's functions may return, checked where it is returned, and the defaults for the rest.

Needs only the standard library and torch, because the runner carries this file to the instances.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

from ...catalog.errors import UserFileError

Batch = tuple[Any, ...] | dict[str, Any]
DEFAULT_LEARNING_RATE = 1e-4
MISSING_LOSS_FIX = (
    "add for example:\n"
    "    def compute_loss(model, batch):\n"
    "        inputs, targets = batch\n"
    "        return torch.nn.functional.cross_entropy(model(inputs), targets)"
)


def checked_model(
    model: Any, source: str, params: Mapping[str, Any] | None = None
) -> torch.nn.Module:
    """Return a model that can be trained.

    Args:
        model: what the user's function returned.
        source: that function, in words.
        params: what it was called with; a negative number among them explains an empty list of
            layers (`range(-1)` makes none, without an error).

    Raises:
        UserFileError: it is no torch module, has nothing to train, or none of its layers.
    """
    if isinstance(model, type) and issubclass(model, torch.nn.Module):
        raise UserFileError(
            f"{source} returned the class {model.__name__}, not a model.",
            fix=f"return {model.__name__}(…) with its arguments.",
        )
    if not isinstance(model, torch.nn.Module):
        raise UserFileError(
            f"{source} returned {described(model)}, not a torch.nn.Module.",
            fix="end it with `return model`.",
        )
    if not any(parameter.requires_grad for parameter in model.parameters()):
        count = sum(1 for _ in model.parameters())
        state = f"all {count} parameters are frozen" if count else "it has no parameters"
        raise UserFileError(
            f"{source} returned a model with nothing to train: {state}.",
            fix="leave requires_grad=True on the parameters that training changes.",
        )
    _check_layers(model, source, params or {})
    return model


def _check_layers(model: torch.nn.Module, source: str, params: Mapping[str, Any]) -> None:
    negative = [
        f"{name}={value}"
        for name, value in params.items()
        if isinstance(value, int) and not isinstance(value, bool) and value < 0
    ]
    empty = [
        name
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.ModuleList | torch.nn.ModuleDict) and not len(module)
    ]
    if negative and empty:
        raise UserFileError(
            f"With {', '.join(negative)} {source} returned a model whose {empty[0]} is empty.",
            fix="give a number of layers of 1 or more.",
        )


def checked_batch(batch: Any, source: str) -> Batch:
    """Return a batch that says how the model is called; one tensor is its only argument.

    A list is a tuple.

    Raises:
        UserFileError: it is neither a tuple, a list, a dict nor a tensor, or its tensors hold
            nothing.
    """
    _refuse_empty(batch, source)
    if isinstance(batch, torch.Tensor):
        return (batch,)
    if isinstance(batch, tuple | list) and batch:
        return tuple(batch)  # A loader's own collation makes lists.
    if isinstance(batch, Mapping) and batch and all(isinstance(key, str) for key in batch):
        return dict(batch)
    fix = "return a tuple (then model(*batch) is called) or a dict (then model(**batch) is called)."
    raise UserFileError(
        f"{source} returned {described(batch)}, not a tuple, a list, a dict or a tensor.", fix=fix
    )


def _refuse_empty(batch: Any, source: str) -> None:
    """Refuse a batch of no samples: every operation on it is free, and so would be the step."""
    tensors = list(_tensors_of(batch))
    if tensors and not any(tensor.numel() for tensor in tensors):
        raise UserFileError(
            f"{source} returned a batch of 0 samples: {described(tensors[0])}.",
            fix="return as many samples as it is asked for: its argument is the first dimension of"
            " every tensor; a data set that it reads may be empty or too short.",
        )


def _tensors_of(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _tensors_of(each)
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _tensors_of(each)


def checked_loss(loss: Any, source: str) -> torch.Tensor:
    """Return a loss that a backward pass can start from, or that of an evaluation.

    Raises:
        UserFileError: it is no tensor, has more than one element, or depends on no parameter where
            gradients are computed.
    """
    if not isinstance(loss, torch.Tensor):
        fix = "return the loss itself as a tensor, without .item()."
        if isinstance(loss, tuple | list | dict):
            fix = "return one tensor: of several losses their sum, without metrics beside it."
        raise UserFileError(f"{source} returned {described(loss)}, not a loss tensor.", fix=fix)
    if loss.numel() != 1:
        raise UserFileError(
            f"{source} returned {described(loss)}; a loss has one element.",
            fix="reduce it, for example `return loss.mean()`.",
        )
    if torch.is_grad_enabled() and not loss.requires_grad:
        raise UserFileError(
            f"{source} returned a loss that depends on no trainable parameter.",
            fix="compute it from the model's output, without .detach() or torch.no_grad().",
        )
    return loss


def default_loss(model: torch.nn.Module, batch: Batch) -> torch.Tensor:
    """Return `output.loss`, or the output itself if it is a scalar.

    Raises:
        UserFileError: the output is neither; the message shows the function to add.
    """
    output = model(**batch) if isinstance(batch, dict) else model(*batch)
    loss = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if loss is not None:
        return checked_loss(loss, "the model's output.loss")
    if isinstance(output, torch.Tensor) and output.numel() == 1:
        return checked_loss(output, "the model")
    raise UserFileError(
        f"The model returned {described(output)}, and there is no compute_loss to make a loss of"
        " it.",
        fix=MISSING_LOSS_FIX,
    )


def default_optimizer(parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
    """Return AdamW, the optimizer of a file that names none."""
    return torch.optim.AdamW(parameters, lr=DEFAULT_LEARNING_RATE)


def described(value: Any) -> str:
    """Return what a value is, in words: its type, and shape or size where it has one."""
    if value is None:
        return "None"
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    kind = type(value).__name__
    if isinstance(value, tuple | list | dict | set):
        return f"an empty {kind}" if not value else f"a {kind} of {len(value)}"
    return f"{'an' if kind[0].lower() in 'aeiou' else 'a'} {kind}"
