"""Dropout where layers are split: other masks on other parts, the same on what all ranks hold.

Tensor ranks have the same random numbers, as they must for what each of them holds whole. Of what
is split (between a `colwise` and a `rowwise` module, or the parts of a sequence) every rank has
another part, and the same numbers would drop features at the same place of all parts together. A
dropout is one of the two kinds by where in the code it is called: the first time, ranks compare
what they give it. Its random numbers are then drawn from those that all ranks have, and so follow
the seed of the step, and are there again where a block is computed anew.

Megatron-LM keeps a generator of its own for what is split (arXiv:1909.08053, appendix B.2).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.nn import functional
from torch.nn.modules.dropout import _DropoutNd as _Dropout
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack

from .compiled_dropout import naming_backend, replace_names

DROPOUTS: dict[Any, tuple[int, str]] = {
    functional.dropout: (1, "p"),
    functional.dropout1d: (1, "p"),
    functional.dropout2d: (1, "p"),
    functional.dropout3d: (1, "p"),
    functional.alpha_dropout: (1, "p"),
    functional.feature_alpha_dropout: (1, "p"),
    torch.dropout: (1, "p"),
    torch.alpha_dropout: (1, "p"),
    torch.feature_dropout: (1, "p"),
    torch.feature_alpha_dropout: (1, "p"),
    torch.native_dropout: (1, "p"),
    functional.scaled_dot_product_attention: (4, "dropout_p"),
}
"""Functions that drop, with the place and the name of how much."""
ALIKE = 1e-6
"""Relative difference of two sums below which tensors are taken to be the same."""
MOST_FRAMES = 32
TORCHS_OWN = "torchs_own"
"""Attribute of what stands in the place of one of torch's functions: that function."""
LARGEST_SEED = 2**48


class SplitDropout(TorchFunctionMode):
    """Inside it, dropout of split tensors draws other masks on every tensor rank."""

    def __init__(self, mesh: DeviceMesh) -> None:
        """Prepare it.

        Args:
            mesh: of the tensor ranks.
        """
        super().__init__()
        self._group = mesh.get_group()
        self._rank = mesh.get_local_rank()
        self._split: dict[Hashable, bool] = {}
        """By where a dropout is called: whether its tensors are split."""
        self.rests: Callable[[], bool] = lambda: False
        """Whether what is computed now is none of the training: its tensors hold any values."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        """Call a function of torch; one that drops, with the random numbers that are due."""
        kwargs = kwargs or {}
        # torch's own code names the function by what stands in its place.
        func = getattr(func, TORCHS_OWN, func)
        if func not in DROPOUTS or not _drops(func, args, kwargs) or self.rests():
            return func(*args, **kwargs)
        given = [one for one in (*args, *kwargs.values()) if isinstance(one, Tensor)]
        if not self._is_split(func, given):
            return func(*args, **kwargs)
        return self._with_own_numbers(lambda: func(*args, **kwargs))

    def _is_split(self, func: Any, given: Sequence[Tensor]) -> bool:
        place = (func, _place(sys._getframe(2)), *(tuple(one.shape) for one in given))
        if place not in self._split:
            with torch.no_grad(), torch._C.DisableTorchFunction():
                self._split[place] = any(self._differs(one) for one in given)
        return self._split[place]

    def _differs(self, tensor: Tensor) -> bool:
        """Return whether tensor ranks hold different values, on all of them alike; collective."""
        own = tensor.to_local() if isinstance(tensor, DTensor) else tensor
        values = own.detach().double().nan_to_num()
        sums = torch.stack([values.sum(), values.abs().sum()])
        both = torch.cat([sums, -sums])
        dist.all_reduce(both, dist.ReduceOp.MAX, group=self._group)
        largest, smallest = both[:2], -both[2:]
        return bool((largest - smallest > ALIKE * largest.abs().max()).any())

    def _with_own_numbers(self, call: Callable[[], Any]) -> Any:
        # Drawn from the numbers that all have: it is another in every call, step and block.
        drawn = int(torch.randint(LARGEST_SEED, (), device="cpu"))
        devices = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []
        with torch.random.fork_rng(devices):
            torch.manual_seed(drawn + self._rank)
            return call()


def split_dropout(model: nn.Module, mesh: DeviceMesh, *, compiled: bool = False) -> SplitDropout:
    """Let dropout in a model whose layers are split follow its tensors, in place.

    Every module enters the mode by itself, since one that is computed anew in the backward pass is
    called from there alone. To be called before anything wraps forward passes.

    Args:
        model: of this rank.
        mesh: of the tensor ranks.
        compiled: whether blocks are to be compiled. Compiled code knows of no such mode, so it
            breaks off for each dropout that drops something, whether a module or a function. One
            that drops nothing, such as attention without dropout, stays in the compiled code.
    """
    mode = SplitDropout(mesh)
    if compiled:
        replace_names(model, {func: _breaking(mode, func) for func in DROPOUTS})
    for module in model.modules():
        if not compiled:
            module.forward = partial(_inside, mode, module.forward)
        elif isinstance(module, _Dropout) and module.p > 0:
            module.forward = torch.compiler.disable(partial(_inside, mode, module.forward))
    return mode


def split_backend() -> Callable[..., Any]:
    """Return what compiles blocks whose layers are split, and names dropout that it finds there."""
    return naming_backend(DROPOUTS, _drops)


def _inside(mode: SplitDropout, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if mode in _get_current_function_mode_stack():
        return forward(*args, **kwargs)
    with mode:
        return forward(*args, **kwargs)


def _breaking(mode: SplitDropout, func: Any) -> Callable[..., Any]:
    place, name = DROPOUTS[func]
    by_hand = torch.compiler.disable(partial(_inside, mode, func))

    def call(*args: Any, **kwargs: Any) -> Any:
        if _drops_by(place, name, args, kwargs):
            return by_hand(*args, **kwargs)
        return func(*args, **kwargs)

    setattr(call, TORCHS_OWN, func)
    return call


def _drops(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    return _drops_by(*DROPOUTS[func], args, kwargs)


def _drops_by(place: int, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    usual = 0.0 if name == "dropout_p" else 0.5
    share = args[place] if len(args) > place else kwargs.get(name, usual)
    if name == "dropout_p":
        return bool(share)
    training = args[2] if len(args) > 2 else kwargs.get("training", kwargs.get("train", True))
    return bool(share) and bool(training)


def _place(frame: FrameType | None) -> Hashable:
    """Return where in the model a call is: the lines up to the module that makes it."""
    lines: list[tuple[str, int]] = []
    module: object = None
    while frame is not None and len(lines) < MOST_FRAMES:
        found = frame.f_locals.get("self")
        lines.append((frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
        if isinstance(found, nn.Module):
            module = found
            break
    return (id(module), *lines)
