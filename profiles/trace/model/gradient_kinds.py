"""Which parameters get no gradient, or a sparse one, and what the optimizer keeps because of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import nn

from ....catalog.errors import UserFileError
from ....catalog.text.quantity import format_bytes
from ..gpu.sparse import empty_gradient, is_sparse
from ..torch_private import no_torch_function

MOST_NAMES = 3
"""Parameters that are named in a note."""


class RefusedGradientsError(UserFileError):
    """The optimizer takes no gradients of the kind that it was given: dense ones, or sparse."""


@dataclass(frozen=True)
class GradientKinds:
    """The trainable parameters whose gradient is not a dense tensor."""

    unused: tuple[nn.Parameter, ...] = ()
    """Those that get none: the loss leaves them out."""
    sparse: tuple[nn.Parameter, ...] = ()
    """Those whose gradient has the rows alone that were looked up."""

    def is_same(self, other: GradientKinds) -> bool:
        """Return whether both name the same parameters."""
        pairs = ((self.unused, other.unused), (self.sparse, other.sparse))
        return all(_ids(one) == _ids(two) for one, two in pairs)

    def notes(self, model: nn.Module) -> list[str]:
        """Return what the user should know of them; [] without any."""
        found = []
        if self.unused:
            found.append(
                f"trainable but without a gradient: {_described(model, self.unused)}; the optimizer"
                " never updates what has none, and data-parallel replicas (DDP) send zeros for it;"
                " freeze it with requires_grad_(False), or remove it"
            )
        if self.sparse:
            found.append(
                f"sparse gradients: {_described(model, self.sparse)}; their rows are taken as all"
                " distinct and none as padding; NCCL and FSDP reduce dense ones alone, so that only"
                " plans on one accelerator run"
            )
        return found


def expected_kinds(model: nn.Module) -> GradientKinds:
    """Return the kinds as far as the layers say them before a step: embeddings with sparse=True."""
    tables = [one for one in model.modules() if isinstance(one, (nn.Embedding, nn.EmbeddingBag))]
    weights = {id(one.weight) for one in tables if one.sparse}
    return GradientKinds(
        sparse=tuple(p for p in model.parameters() if id(p) in weights and p.requires_grad)
    )


def found_kinds(model: nn.Module) -> GradientKinds:
    """Return the kinds after a backward pass."""
    trained = [p for p in model.parameters() if p.requires_grad]
    return GradientKinds(
        unused=tuple(p for p in trained if p.grad is None),
        sparse=tuple(p for p in trained if p.grad is not None and is_sparse(p.grad)),
    )


def make_state(optimizer: torch.optim.Optimizer, kinds: GradientKinds, *, name: str) -> None:
    """Take one step on zero gradients: what the optimizer keeps is there in every later step.

    Args:
        optimizer: without state yet.
        kinds: an optimizer passes over parameters without a gradient (torch.optim.Adam,
            `_init_group`: `if p.grad is not None`), and makes no state for them.
        name: of the model, for the error.

    Raises:
        RefusedGradientsError: the optimizer does not take sparse gradients, or no dense ones.
        UserFileError: it keeps sparse state.
    """
    unused, sparse = _ids(kinds.unused), _ids(kinds.sparse)
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.requires_grad and id(parameter) not in unused:
                is_rows = id(parameter) in sparse
                parameter.grad = (
                    empty_gradient(parameter) if is_rows else torch.zeros_like(parameter)
                )
    try:
        optimizer.step()
    except RuntimeError as error:
        raise _refusal(optimizer, error, name) from error
    with no_torch_function():
        grows = any(map(is_sparse, state_tensors(optimizer)))
    if grows:
        raise UserFileError(
            f"{name}: {type(optimizer).__name__} keeps sparse state, to which torch appends the"
            " rows of every step: its memory grows without end.",
            fix="set momentum=0, use torch.optim.SparseAdam or Adagrad, or leave sparse=True out.",
        )
    optimizer.zero_grad(set_to_none=True)


def state_tensors(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    """Yield the tensors that an optimizer keeps on the device."""
    for state in optimizer.state.values():
        for value in state.values():
            if isinstance(value, torch.Tensor) and value.is_meta:
                yield value


def _refusal(optimizer: torch.optim.Optimizer, error: RuntimeError, name: str) -> Exception:
    """Return torch's refusal of a kind of gradient as the user's error; any other as it is."""
    said = str(error)
    if "sparse gradients" not in said and "dense gradients" not in said:
        return error
    ways = "torch.optim.Adagrad or SGD without momentum, which take dense and sparse gradients"
    if "dense gradients" in said:
        ways += "; SparseAdam is for models in which every trained layer has sparse=True"
    return RefusedGradientsError(
        f"{name}: torch refuses the optimizer that build_optimizer() returns"
        f" ({type(optimizer).__name__}): {said}",
        fix=f"use {ways}; or leave sparse=True out of the embeddings and keep AdamW.",
    )


def _described(model: nn.Module, some: Collection[nn.Parameter]) -> str:
    names = [name for name, p in model.named_parameters() if id(p) in _ids(some)]
    shown = ", ".join(names[:MOST_NAMES])
    shown += f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    size = format_bytes(sum(p.numel() * p.element_size() for p in some))
    count = sum(p.numel() for p in some)
    return f"{count:,} parameter{'s' * (count != 1)} ({size}: {shown})"


def _ids(some: Iterable[nn.Parameter]) -> set[int]:
    return set(map(id, some))
