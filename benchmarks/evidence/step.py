"""One real training step of a case: the model file loaded, placed, cast and recomputed as stated.

Needs the standard library, torch and this checkout; gpuplan need not be installed.
"""

from __future__ import annotations

import functools
import gc
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from .cases import Case
from .checkout import register_package

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
LOSS_SCALE = 2.0**10
"""First loss scale of fp16: torch's own default of 2^16 skips the first optimizer steps."""
SIXTEEN_BIT = {"bf16-amp": torch.bfloat16, "fp16-amp": torch.float16, "bf16": torch.bfloat16}
KEPT_OPERATIONS = (
    # What selective recompute keeps: matrix products, attention, convolutions (as the kinds of
    # `profiles/passes/recompute.py`). RNNs have no blocks that are recomputed.
    *("mm", "addmm", "bmm", "baddbmm", "_scaled_mm", "convolution"),
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_flash_attention_for_cpu",
)


class TrainingStep:
    """One training step in three parts, as a plain training loop does it, on a batch that stays."""

    def __init__(self, case: Case, device: str) -> None:
        self.case = case
        self.device = device
        workload = load_model_file(case)
        self._compute_loss = workload.compute_loss
        self.module, self.built_in_fp32 = _built(workload, case, device)
        self.blocks = wrap_blocks(self.module, case.recompute)
        self.optimizer = workload.build_optimizer(self.module.parameters())
        self.batch = _batch(workload, case, device)
        self._model = torch.compile(self.module) if case.compile else self.module
        self._scaler = (
            torch.amp.GradScaler(device, init_scale=LOSS_SCALE)
            if case.precision == "fp16-amp"
            else None
        )

    def __call__(self) -> None:
        """Run the whole step."""
        loss = self.forward()
        self.backward(loss)
        del loss
        self.update()

    def forward(self) -> Tensor:
        """Return the loss."""
        cast = (
            torch.autocast(self.device, SIXTEEN_BIT[self.case.precision])
            if self.case.precision.endswith("-amp")
            else nullcontext()
        )
        with cast:
            return self._compute_loss(self._model, self.batch)

    def backward(self, loss: Tensor) -> None:
        """Compute the gradients."""
        (self._scaler.scale(loss) if self._scaler else loss).backward()

    def update(self) -> None:
        """Step the optimizer and drop the gradients."""
        if self._scaler:
            self._scaler.step(self.optimizer)
            self._scaler.update()
        else:
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def loss_scale(self) -> float | None:
        """Return the loss scale of fp16; it falls when an optimizer step is skipped."""
        return self._scaler.get_scale() if self._scaler else None


def load_model_file(case: Case) -> Any:
    """Return the Workload of a case, read as gpuplan reads every model file."""
    register_package()
    from gpuplan.profiles.user_model.contract import load_workload
    from gpuplan.profiles.user_model.spec import parse_model_spec

    example = EXAMPLES / case.model
    path = example if example.is_file() else Path(case.model)
    return load_workload(parse_model_spec(str(path), params=case.params))


def wrap_blocks(model: nn.Module, recompute: str) -> int:
    """Let every repeated block run again in the backward pass; return how many blocks there are.

    Raises:
        ValueError: recompute is asked for, and the model repeats no block.
    """
    if recompute == "none":
        return 0
    register_package()
    from gpuplan.profiles.user_model.structure.blocks import find_blocks

    blocks = [block for run in find_blocks(model) for block in run.modules]
    if not blocks:
        raise ValueError(f"recompute={recompute}, but the model repeats no block")
    how: dict[str, Any] = {"use_reentrant": False}
    if recompute == "selective":
        how["context_fn"] = functools.partial(create_selective_checkpoint_contexts, _kept())
    for block in blocks:
        block.forward = functools.partial(checkpoint, block.forward, **how)
    return len(blocks)


def _built(workload: Any, case: Case, device: str) -> tuple[nn.Module, bool]:
    """Return the model on the device, in training mode, stored as the precision says.

    And whether it was in fp32 there before it was cast: the allocator's pool keeps what that took.
    """
    try:
        with torch.device(device):  # Filling billions of parameters takes the host a minute.
            model = workload.build_model()
        return _stored(model, case).to(device).train(), case.precision == "bf16"
    except torch.OutOfMemoryError:
        # Whole in fp32 it does not fit; in 16 bits it may.
        if case.precision != "bf16":
            raise
        model = None
        gc.collect()
        torch.cuda.empty_cache()
    return _stored(workload.build_model(), case).to(device).train(), False


def _stored(model: nn.Module, case: Case) -> nn.Module:
    return model.to(torch.bfloat16) if case.precision == "bf16" else model


def _batch(workload: Any, case: Case, device: str) -> Any:
    with torch.device(device):
        batch = workload.make_batch(case.micro_batch)

    def placed(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        value = value.to(device)
        to_low = case.precision == "bf16" and value.is_floating_point()
        return value.to(torch.bfloat16) if to_low else value

    if isinstance(batch, dict):
        return {key: placed(value) for key, value in batch.items()}
    return tuple(placed(value) for value in batch)


def _kept() -> list[Any]:
    packets = [getattr(torch.ops.aten, name, None) for name in KEPT_OPERATIONS]
    return [packet.default for packet in packets if packet is not None]
