"""The words that a setup is described in, each list written once. Standard library only."""

from __future__ import annotations

from typing import Literal, get_args

Precision = Literal["fp32", "tf32", "fp16-amp", "bf16-amp", "bf16", "fp8"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
Stack = Literal["torch-eager", "torch-compile", "megatron", "xla"]
"""The software that runs the step."""
STACKS: tuple[Stack, ...] = get_args(Stack)
Recompute = Literal["none", "selective", "full"]
"""What of the forward pass is computed again in the backward pass instead of kept."""
RECOMPUTES: tuple[Recompute, ...] = get_args(Recompute)
Optimizer = Literal["adamw", "adam", "adamw8bit", "adafactor", "sgd", "muon"]
"""Optimizers that can stand for the file's own."""
OPTIMIZERS: tuple[Optimizer, ...] = get_args(Optimizer)
FrozenPrecision = Literal["bf16", "nf4"]
"""How parameters that are not trained are kept, where not as the precision keeps them."""
FrozenChoice = Literal["fp32", "bf16", "nf4"]
"""The same as a person asks for it; "fp32" is as the precision keeps them."""
FROZEN_CHOICES: tuple[FrozenChoice, ...] = get_args(FrozenChoice)
Offloaded = Literal["optimizer", "parameters", "activations"]
"""What can be kept in host memory; with the parameters go their gradients and the optimizer."""
OFFLOADABLE: tuple[Offloaded, ...] = get_args(Offloaded)
TensorPlan = Literal["none", "tensor", "sequence"]
"""What a model says of its tensor parallelism: nothing, how its layers are split, or that and how
its norms are split along the sequence."""
Collective = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]
COLLECTIVES: tuple[Collective, ...] = get_args(Collective)
OfferPurchase = Literal["on-demand", "spot"]
"""How an offer of the catalogue is sold."""
OfferWish = Literal["on-demand", "spot", "any"]
"""Which prices of offers a person asks for."""
PurchaseWish = Literal[
    "on-demand", "spot", "any", "committed-1y", "committed-3y", "reserved", "block", "all"
]
"""How a person wants to buy; "any" takes the cheapest for this job, "all" ranks on demand and lists
the other ways beside it."""
COMMITTED_YEARS = {"committed-1y": 1, "committed-3y": 3}
"""Years of the commitments that are asked for by these words."""
Purchase = Literal["on-demand", "spot", "committed", "reserved", "block", "owned"]
"""How a plan's machines are paid for: a commitment is to be signed, a reservation is held."""
ExportTool = Literal["skypilot", "torchrun", "deepspeed", "accelerate"]
"""Tools that a plan can be written for."""
EXPORT_TOOLS: tuple[ExportTool, ...] = get_args(ExportTool)
