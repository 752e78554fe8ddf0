"""The small decoder with a plan for tensor parallelism, whose head is its embedding's weight."""

import tensor_decoder
from tensor_decoder import (  # noqa: F401 - the contract's functions
    build_optimizer,
    compute_loss,
    make_batch,
    tensor_parallel_plan,
)
from torch import nn


def build_model(
    layers: int = 3,
    hidden: int = 512,
    heads: int = 8,
    kv_heads: int = 8,
    ffn: int = 1536,
    vocab: int = 4096,
) -> nn.Module:
    model = tensor_decoder.build_model(layers, hidden, heads, kv_heads, ffn, vocab=vocab)
    model.get_submodule("head").weight = model.get_submodule("embedding").weight
    return model
