"""The degrees that divide a step's kernels, and how a software stack divides them."""

from __future__ import annotations

from dataclasses import dataclass

from ...catalog.vocabulary import Stack
from ..plan.layout import Layout
from ..software.collective_copies import NO_COPIES, CollectiveCopies
from ..software.fp8_operands import AS_COMPUTED, GatheredBytes


@dataclass(frozen=True, kw_only=True)
class Split:
    """The degrees that divide kernels, and what the stack does around them."""

    tensor: int = 1
    context: int = 1
    expert: int = 1
    sequence_parallel: bool = False
    splits_vocabulary: bool = False
    """Whether embedding and head are split too, by the vocabulary."""
    gathers_logits: bool = False
    """Whether every rank computes the loss on all logits, not on its part of the vocabulary."""
    reduces_per_layer: bool = False
    """Whether every column layer reduces its own input gradient, as a plan of torch's
    ColwiseParallel does, instead of one reduction for those that share an input."""
    keeps_gathered: bool = False
    """Whether what sequence parallelism gathers for column layers is kept for the backward pass
    (torch), not gathered again while the input's gradient is computed (Megatron)."""
    copies_logits: bool = False
    """Whether the backward of a loss on split logits holds their gradient twice over: torch's
    loss_parallel is written in eager operations (torch/distributed/tensor/parallel/loss.py)."""
    reduces_norms: bool = False
    """Whether sequence parallelism reduces the gradient of every norm's parameter by itself in each
    backward pass (torch), not all of them together once a step (Megatron)."""

    splits_experts: bool = False
    """Whether tensor ranks split the layers of each expert too (`dispatch.SPLIT_BY_TENSOR`)."""
    gathered: GatheredBytes = AS_COMPUTED
    """What is gathered for the products of blocks, where sequence parallelism gathers."""
    copies: CollectiveCopies = NO_COPIES
    """What is copied beside the collectives of tensor ranks."""

    @property
    def expert_tensor(self) -> int:
        """Among how many tensor ranks each expert's layers are split."""
        return self.tensor if self.splits_experts else 1

    @classmethod
    def of(
        cls,
        layout: Layout,
        stack: Stack,
        gathered: GatheredBytes = AS_COMPUTED,
        *,
        splits_experts: bool = False,
        copies: CollectiveCopies = NO_COPIES,
    ) -> Split:
        """Return the split that a layout asks of a stack.

        torch's is the plan of its tutorial (intermediate/TP_tutorial): with sequence parallelism
        the loss is parallel too, as in torchtitan; without, logits are gathered.
        """
        sequence_parallel = layout.sequence_parallel and layout.tensor > 1
        of_torch = stack.startswith("torch") and layout.tensor > 1
        return cls(
            tensor=layout.tensor,
            context=layout.context,
            expert=layout.expert,
            sequence_parallel=sequence_parallel,
            splits_vocabulary=True,
            gathers_logits=of_torch and not sequence_parallel,
            reduces_per_layer=of_torch and not sequence_parallel,
            keeps_gathered=of_torch and sequence_parallel,
            copies_logits=sequence_parallel and stack == "torch-eager",
            reduces_norms=of_torch and sequence_parallel,
            splits_experts=splits_experts,
            gathered=gathered if sequence_parallel else AS_COMPUTED,
            copies=copies if layout.tensor > 1 else NO_COPIES,
        )
