"""The torch calls of a model, as a machine with a GPU would run them.

Device tensors are meta tensors (shapes and strides, no data) that report `cuda:0`. `Target` is a
torch-function mode: it sees every torch call of the model and replaces those whose GPU version
differs (attention, dropout, RMS norm, RNN), casts under autocast, and sends `.cuda()`,
`.to("cuda")` and `device="cuda"` to meta. It needs neither a GPU nor a CUDA build, and gives the
same trace on both.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ..kernels.operations import words
from ..torch_private import without_overrides
from ..unknown_value import UnknownValue, unknown_in
from . import flex
from .autocast import Autocast
from .functions import (
    GETTERS,
    REPLACED,
    SET_DATA,
    attention,
    backward,
    lost_flash,
    on_meta,
    set_data,
)
from .recurrent import PACKED_WHOLE
from .tensor_types import META

TINY_ELEMENTS = 4096
"""CPU factories up to this size run for real, so that `.item()` on a schedule works."""
FACTORIES = words(
    """zeros ones empty full rand randn randint randperm arange range linspace logspace eye
    empty_strided tril_indices triu_indices normal scalar_tensor complex hann_window hamming_window
    bartlett_window blackman_window kaiser_window empty_permuted"""
)
ATTENTION = "scaled_dot_product_attention"
PACK = "_pack_padded_sequence"
READS_DATA = words("item tolist numpy __bool__ __int__ __float__ __index__ __array__ __contains__")


class Target(TorchFunctionMode):
    """Makes torch calls on meta tensors behave as on the target GPU.

    Args:
        casts: Whether autocast regions cast; without, they are only noted.
        data_dependent: Called with the name of an operation that needs data; must raise.
        paused: Context manager factory under which operations are not recorded.
        keep: Called with every 16-bit copy of a weight that autocast keeps until it ends.
        item: Called for `Tensor.item()`, whose result it returns; None: as any other read.
        note: Is told what the line that runs does to the speed of attention, or leaves to data.
    """

    def __init__(
        self,
        *,
        casts: bool,
        data_dependent: Callable[[str], Any],
        paused: Callable[[], Any],
        keep: Callable[[torch.Tensor], None],
        item: Callable[[], float] | None = None,
        note: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__()
        self.casts = casts
        self.autocast_dtype: torch.dtype | None = None
        self.compiles = False
        self._data_dependent = data_dependent
        self._item = item
        self._note = note
        self.looks_for_zeros = False
        """Whether `istft` runs, which asks whether the sum of its windows is 0 somewhere."""
        self.reads_host_values = False
        """Whether a tensor of the host was read, whose values are there in a trace."""
        self.pads = False
        """Whether a batch is padded or packed, so that transformers gives attention a mask."""
        self._unknown_values = False
        self._paused = paused
        self.autocast = Autocast(keep)

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run one torch call as the target would."""
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name == "__get__":
            getter = GETTERS.get(func)
            return getter(args[0]) if getter else func(*args, **kwargs)
        if func == SET_DATA:
            return set_data(func, *args)
        if self._unknown_values:
            unknown = unknown_in((args, tuple(kwargs.values())))
            if unknown is not None:
                unknown.needed(f"Tensor.item, used in {name.strip('_')},")
        if name == "item" and self._item is not None and args[0].is_meta:
            answer = self._item()
            self._unknown_values |= isinstance(answer, UnknownValue)
            return answer
        if name in READS_DATA and not args[0].is_meta:
            self.reads_host_values = True
        elif name in READS_DATA:
            answer = self._data_dependent(f"Tensor.{name}")
            return bool(answer) if name in ("__bool__", "__contains__") else answer
        if type(func) is FunctionType:
            return self._run_python(func, name, args, kwargs)
        if name == "_assert" and isinstance(args[0], torch.Tensor) and args[0].is_meta:
            return func(bool(self._data_dependent("Tensor.__bool__")), *args[1:], **kwargs)
        if name == ATTENTION and any(getattr(one, "is_nested", False) for one in args[:3]):
            self._data_dependent(f"{ATTENTION} of nested tensors")
        if self.casts and torch.is_autocast_enabled("cuda"):
            args, kwargs = self.autocast.cast(name, args, kwargs)
        if name == "istft":
            return self._invert_spectrum(func, args, kwargs)
        if name in FACTORIES:
            return self._make(func, args, kwargs)
        if name == flex.NAME:
            return self._attend_flexibly(*args)
        special = REPLACED.get(name)
        if special is not None:
            self._say(name, args, kwargs)
            return special(func, *args, **kwargs)
        if "device" in kwargs:
            kwargs = {**kwargs, "device": on_meta(kwargs["device"])}
        return func(*args, **kwargs)

    def _say(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Tell what a call does that its caller should know."""
        said = None
        if name == ATTENTION:
            said = lost_flash(*args, pads=self.pads, **kwargs)
        elif name == PACK and args[0].is_meta:
            said = PACKED_WHOLE
        if said is not None and self._note is not None:
            self._note(said)

    def _invert_spectrum(
        self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        self.looks_for_zeros = True
        try:
            return func(*args, **kwargs)
        finally:
            self.looks_for_zeros = False

    def _run_python(
        self, func: FunctionType, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        module = func.__module__
        if module == "torch.nn.init":
            return kwargs["tensor"] if "tensor" in kwargs else args[0]
        # The pools with an optional second result are not defined where they say they are.
        if func.__globals__["__name__"] in ("torch.nn.functional", "torch.functional"):
            with self:
                return without_overrides(func)(*args, **kwargs)
        if func is torch.Tensor.backward:
            with self:
                return backward(*args, **kwargs)
        if self.casts and torch.is_autocast_enabled("cuda"):
            args, kwargs = self.autocast.cast(name, args, kwargs)
        return func(*args, **kwargs)

    def _attend_flexibly(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        score_mod: flex.ScoreMod,
        block_mask: tuple[Any, ...],
        scale: float,
        *_: Any,
    ) -> tuple[torch.Tensor, ...]:
        """Run what `flex_attention` calls, with its arguments: block sizes and mask come last."""
        *_tensors, rows, columns, mask = block_mask
        with self._paused():
            kept = flex.kept_blocks(mask, query.shape[2], key.shape[2], (rows, columns))
            trained = score_mod if flex.reads_what_is_trained(score_mod, query) else None
        if self._note is not None:
            self._note(kept.said(compiled=self.compiles or flex.is_compiled()))
        return flex.attend(attention, kept, query, key, value, trained, scale)

    def _make(
        self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> torch.Tensor:
        device = kwargs.get("device")
        if device is not None and torch.device(device).type != "cpu":
            return func(*args, **{**kwargs, "device": META})
        on_meta = {**kwargs, "device": META}
        on_meta.pop("generator", None)
        if any(isinstance(value, torch.Tensor) for value in args):
            return func(*args, **kwargs)
        with self._paused():
            elements = func(*args, **on_meta).numel()
        return func(*args, **(kwargs if elements <= TINY_ELEMENTS else on_meta))
