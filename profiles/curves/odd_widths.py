"""Products in 16 bits whose rows start on odd addresses: those of an odd vocabulary, most often.

Asynchronous copies take 4, 8 or 16 bytes (PTX ISA, cp.async), Hopper's tensor memory accelerator
rows that are a multiple of 16 bytes apart. Rows of an odd number of 2-byte elements can be neither:
cuBLAS runs kernels that load element by element ("s1688gemm_bf16_128x128_align1", of Turing), at a
rate that does not grow with what newer tensor cores can do. 4-byte elements are not concerned.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from ...catalog.types import Accelerator, Dtype
from .files import Array, shared_table

OddWidths = Literal["kept", "padded", "none"]
"""What software does with odd widths: multiplies them as they are, or in wider rows; none: there
are none, because the model itself is wider."""


def odd_product_s(
    time_s: Array, flops: Array, device: Accelerator, dtype: Dtype, widths: OddWidths
) -> Array:
    """Return the seconds of products with an odd width.

    Args:
        time_s: of the same products with an even width.
        flops: of each.
        device: that runs them.
        dtype: of their operands.
        widths: what the software does with them.
    """
    if widths == "none" or dtype in ("fp32", "tf32"):
        return time_s
    rule = shared_table("_relations")["odd_widths"]
    if widths == "padded":
        return time_s * rule["padded"]
    of_cards = "GDDR" in (device.memory_type or "")
    share = None if of_cards else rule["share_of_peak"].get(device.arch)
    if share is None or dtype == "fp8":
        return time_s * rule["elsewhere"]
    return np.maximum(time_s, flops / (share * device.peak_flops[dtype]))
