"""Whether batches are padded or packed: what transformers decides by their masks and positions.

It gives attention a mask where that of the batch hides a token, or where positions begin anew
within a sequence, and none where all are seen (`transformers.masking_utils`); the kernels differ
(profiles/trace/gpu/functions.py).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from types import FrameType
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from ..user_model.workload import Workload
from .draws import drawing_alike
from .torch_private import no_torch_function

LIBRARY = "transformers.masking_utils"
"""The module of transformers that reads masks."""
OF_ALL, OF_DECODER = "attention_mask", "decoder_attention_mask"
POSITIONS = "position_ids"
_ASKS_POSITIONS = "find_packed_sequence_indices"
"""Its function that keeps packed sequences apart, where a batch has no mask."""
_CAUSAL, _BOTH_WAYS = "create_causal_mask", "create_bidirectional_mask"
_ASKS = ("_ignore_causal_mask_sdpa", "_ignore_bidirectional_mask_sdpa")
"""Its functions that leave a mask away where all tokens are seen."""
ALL_SEEN = (
    "attention_mask hides no token in make_batch(), so attention is given none. If your batches are"
    " padded, let it have zeros: attention with a mask is slower"
)
NOT_KNOWN = (
    "what attention_mask hides is not known: it is taken to hide no token. If your batches are"
    " padded, attention is given a mask, which is slower: a make_batch() that returns a dict with"
    " a mask on the CPU shows it"
)


def mask_asked_for() -> str | None:
    """Return which mask of a batch transformers asks for zeros; None where it asks another thing.

    Of positions it asks whether they begin anew (`POSITIONS`). The decoder of an encoder-decoder
    has a mask of its own, which the library fills with ones where a batch has none.
    """
    maker, asks = None, False
    for frame in _frames_of_library():
        name = frame.f_code.co_name
        if name == _ASKS_POSITIONS:
            return POSITIONS
        asks |= name in _ASKS
        if name in (_CAUSAL, _BOTH_WAYS):
            maker = frame
            break
    if not asks:
        return None
    config = maker.f_locals.get("config") if maker is not None else None
    is_decoder_s = maker is not None and maker.f_code.co_name == _CAUSAL
    of_decoder = is_decoder_s and getattr(config, "is_encoder_decoder", False)
    return OF_DECODER if of_decoder else OF_ALL


def _frames_of_library() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__") == LIBRARY:
            yield frame
        frame = frame.f_back


def hiding_masks(workload: Workload, size: int) -> dict[str, bool]:
    """Return of each mask in a batch of so many samples whether it hides a token, by its name.

    Positions hide what is packed beside a sequence. Empty where none is found, or the batch cannot
    be made without a GPU. Runs beside a trace: the batch is a real one, on the host.
    """
    with (
        suppress(Exception),
        drawing_alike(),
        _disable_current_modes(),
        no_torch_function(),
    ):
        return dict(_masks(workload.make_batch(size)))
    return {}


def _masks(batch: Any) -> Iterator[tuple[str, bool]]:
    if isinstance(batch, Mapping):
        for name, value in batch.items():
            if name in (OF_ALL, OF_DECODER) and isinstance(value, torch.Tensor):
                yield str(name), not bool(value.all())
            elif name == POSITIONS and isinstance(value, torch.Tensor):
                # Of several rows, as models of images have, the library reads the first.
                read = value[0] if value.dim() > 2 else value
                yield POSITIONS, bool((read.diff(dim=-1) != 1).any())
            else:
                yield from _masks(value)
    elif isinstance(batch, (list, tuple)):
        for value in batch:
            yield from _masks(value)
