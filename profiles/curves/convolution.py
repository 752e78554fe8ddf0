"""Time of a convolution on tensor cores: its arithmetic, then the bytes it cannot hide.

    t = padded FLOPs / (share · rate of a large product · rate of the tile)
        + bytes / (share · bandwidth)

A depthwise one uses no tensor cores, in any dtype, and its threads load and store element by
element:

    t = FLOPs / (share · peak without tensor cores) + elements / (rate of a multiprocessor)

With filters of one side (of sequences, most of them) torch's kernels load what each product needs,
so that products set the pace.

Checked against a traced ResNet-50 and VGG-13 (docs/curves.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .files import Array, TileModel
from .gemm import Machine, tile_kernel_s

_TILE = 128.0
"""Output positions, and most output channels, that a block of threads computes."""
_TILES = (_TILE, 64.0, 32.0)
"""Output channels of the kernels to choose from."""
_GROUPED_TILE = 16.0
_CHANNELS = 8.0
"""Input channels are padded to a multiple of this."""
_MEMORY_SHARE = 0.85
_DIRECT_COMPUTE_SHARE = 0.35
_DIRECT_PER_CLOCK = 1.0
"""Elements that a multiprocessor reads or writes in a clock. Both are what is left of the steps of
30 published image models of 3x3 to 7x7 kernels on an RTX-3090, in both memory orders, when all
other kernels are taken as predicted. There it is 0.3 of the bandwidth in 16 bits: memory does not
bind these kernels, so devices with more of it are not faster by that."""
_PRODUCTS_PER_CLOCK = {False: 7.0, True: 3.0}
"""Of a depthwise filter of one side, in a clock of a multiprocessor, forward and backward: 32 x
768 sequences of 768 outputs with 768 taps take 14 and 65 ms on an RTX 3090 (7.4 and 3.2), 94 and
529 on a GTX 1070 of a laptop (about 6 and 2; pytorch/pytorch#75747, BlinkDL/RWKV-CUDA@253c3917,
depthwise_conv1d/run.py, fp32)."""
_DIRECT_MEMORY_SHARE = 0.3
"""Of the bandwidth, where units are whole cores, each with many lanes (TPU, Trainium, Gaudi)."""


@dataclass(frozen=True)
class Convolution:
    """One convolution call; a backward call computes two gradients of the forward's size."""

    batch: Array
    in_channels: Array
    out_channels: Array
    kernel_elements: Array
    out_pixels: Array
    groups: Array
    flops: Array
    size_bytes: Array
    filter_side: Array
    """The longest."""

    @property
    def is_depthwise(self) -> Array:
        """Whether every channel is convolved by itself."""
        return (self.groups > 1) & (self.in_channels == self.groups)

    @property
    def is_square(self) -> Array:
        """Whether the filter is that of an image, with sides of one length."""
        return self.filter_side**2 == self.kernel_elements

    @property
    def has_one_side(self) -> Array:
        """Whether the filter is a row of elements, as over a sequence."""
        return (self.filter_side == self.kernel_elements) & (self.kernel_elements > 1)

    @property
    def rows(self) -> Array:
        """Rows of the matrix product it amounts to: output positions."""
        return self.batch * self.out_pixels

    @property
    def columns(self) -> Array:
        """Output channels of one group."""
        return self.out_channels / self.groups

    @property
    def depth(self) -> Array:
        """Products summed into one output."""
        return self.in_channels / self.groups * self.kernel_elements

    @property
    def calls(self) -> Array:
        """Forward-sized products in this call, by FLOPs."""
        return self.flops / (2 * self.rows * self.columns * self.depth * self.groups)


def tensor_core_conv_s(
    conv: Convolution,
    machine: Machine,
    *,
    gemm_flops_per_s: Array | float,
) -> Array:
    """Return the seconds of a convolution that is not depthwise.

    Args:
        conv: The call.
        machine: The device, for bytes.
        gemm_flops_per_s: What convolutions of many channels reach.
    """
    channels = conv.in_channels / conv.groups
    wide = np.where(conv.groups > 1, _padding(conv.columns, _GROUPED_TILE), _columns_cost(conv))
    padding = wide * _padding(channels, _CHANNELS)
    bandwidth = machine.bandwidth_bytes_per_s
    return conv.flops * padding / gemm_flops_per_s + conv.size_bytes / (_MEMORY_SHARE * bandwidth)


def depthwise_conv_s(
    conv: Convolution,
    machine: Machine,
    *,
    vector_flops_per_s: float,
    clocks_per_s: float | None,
    element_bytes: int,
    backward: bool = False,
) -> Array:
    """Return the seconds of a depthwise convolution.

    Args:
        conv: The call.
        machine: The device, for bytes.
        vector_flops_per_s: Peak without tensor cores.
        clocks_per_s: Clocks of all multiprocessors in a second; None where there are none.
        element_bytes: Of its tensors.
        backward: Whether these are gradients, whose products are slower with filters of one side.
    """
    streamed_per_s = machine.bandwidth_bytes_per_s / element_bytes
    if clocks_per_s is None:
        elements_per_s = _DIRECT_MEMORY_SHARE * streamed_per_s
    else:
        elements_per_s = min(_DIRECT_PER_CLOCK * clocks_per_s, _MEMORY_SHARE * streamed_per_s)
    arithmetic_s = conv.flops / (_DIRECT_COMPUTE_SHARE * vector_flops_per_s)
    if clocks_per_s is not None:
        products_per_s = _PRODUCTS_PER_CLOCK[backward] * clocks_per_s
        arithmetic_s = np.where(conv.has_one_side, conv.flops / (2 * products_per_s), arithmetic_s)
    return arithmetic_s + conv.size_bytes / element_bytes / elements_per_s


def tiled_conv_s(conv: Convolution, tiles: TileModel, machine: Machine) -> Array:
    """Return the seconds of a convolution without tensor cores, by output tiles and waves."""
    calls = np.maximum(conv.calls, 1e-9)
    return calls * tile_kernel_s(
        tiles,
        machine,
        conv.rows,
        conv.columns,
        conv.depth,
        conv.groups,
        conv.flops / calls,
        conv.size_bytes / calls,
    )


def _columns_cost(conv: Convolution) -> Array:
    """Return the time of the best tile over that of outputs that fill the largest one.

    A tile of 128 positions and c channels loads 128 + c values for 128 · c products, so that its
    rate falls as 2 c / (128 + c); in return fewer of its channels are padding. DenseNet's layers of
    32 channels are half as fast otherwise. Filters that are not square, of volumes and
    sequences, have the largest tile alone: our own 3-D U-Net on an H100 takes as long.
    """
    costs = [_padding(conv.columns, tile) * (_TILE + tile) / (2 * tile) for tile in _TILES]
    return np.where(conv.is_square, np.min(costs, axis=0), costs[0])


def _padding(length: Array, tile: Array | float) -> Array:
    return np.ceil(length / tile) * tile / length
