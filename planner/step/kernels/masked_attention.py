"""Attention without a flash kernel: with a mask, long heads, or values of another width.

torch's scaled_dot_product_attention then runs its memory-efficient kernel (CUTLASS), which
multiplies every score that a mask leaves out, and reads the mask once for each head.
"""

from __future__ import annotations

import math

from ....profiles.profile import Kernel

EFFICIENT = "efficient"
"""In the name of the kernel that is left where no flash kernel serves."""
FLASH_HEAD_DIM = 256
"""A longer head has no flash kernel (profiles/trace/gpu/functions.py)."""
_PRODUCTS = {False: 2, True: 5}
"""Of matrices in the forward and in the backward kernel, as the profile counts them."""


def is_efficient(kernel: Kernel) -> bool:
    """Return whether attention in 16 bits runs the memory-efficient kernel."""
    return kernel.kind == "attention" and kernel.dtype == "16bit" and EFFICIENT in kernel.op


def widest_for_cudnn(kernel: Kernel) -> float:
    """Return the head width that cuDNN's limit is about.

    Of latent attention it takes keys 192 and values 128 wide as it does heads of 128
    (`check_cudnn_tensor_shapes` in torch's sdp_utils.cpp).
    """
    head_dim = kernel.dims["head_dim"].base
    is_latent = head_dim == _LATENT_KEYS and is_efficient(kernel) and not takes_mask(kernel)
    return _LATENT_VALUES if is_latent else head_dim


_LATENT_KEYS, _LATENT_VALUES = 192, 128


def takes_mask(kernel: Kernel) -> bool:
    """Return whether a mask alone rules the flash kernel out, if the kernel is in 16 bits."""
    if kernel.kind != "attention" or kernel.causal or EFFICIENT not in kernel.op:
        return False
    dims = kernel.dims
    if dims["head_dim"].base > FLASH_HEAD_DIM:
        return False
    expected = 2.0 * _PRODUCTS[kernel.backward]
    for name in ("batch", "heads", "seq_q", "seq_kv", "head_dim"):
        expected *= dims[name].at(1)
    # Values of another width than the keys have no flash kernel either, and other FLOPs.
    return math.isclose(kernel.flops.at(1), expected)
