"""Frozen parameters in a storage of their own: a base in 16 bits, in 8, or in 4 (QLoRA).

| frozen parameters | linear layers | the others | copies to compute | gradients, optimizer |
|---|---|---|---|---|
| as the precision keeps them | 4 bytes | 4 | 2, until their layer's backward | - |
| bf16 | 2 | 2 | - | - |
| nf4 | 0.516 | 2 | 2, while their layer runs | - |
| in 8 bits (Megatron, fp8-parameters) | 1 | 2 | - | - |

What is trained stays in fp32 under torch.autocast in every row but the last. Sources: Dettmers et
al. 2023 (arXiv:2305.14314, section 3: 4-bit NormalFloat in blocks of 64, double quantisation with
blocks of 256); bitsandbytes 012c660, bitsandbytes/autograd/_functions.py (`MatMul4Bit` keeps the
4-bit weight for backward and dequantises it in both passes); peft LoraConfig
`autocast_adapter_dtype` (adapters in fp32); mlcommons/training_results_v5.1, llama2_70b_lora
(`te.fp8_model_init`).
"""

from __future__ import annotations

from ...catalog.types import Accelerator
from ...catalog.vocabulary import FrozenPrecision, Offloaded, Precision, Recompute
from ...profiles.profile import Profile
from ..plan.layout import Layout
from ..plan.setup import Setup
from .stack import casts_layers
from .versions import FP8_PARAMETERS, NVFP4

BLOCK, BLOCK_OF_CONSTANTS = 64, 256
NF4_BYTES = 0.5 + 1 / BLOCK + 4 / (BLOCK * BLOCK_OF_CONSTANTS)
"""Per parameter: 4 bits, an 8-bit constant per block, an fp32 one per 256 constants: 4.127 bits."""
SIXTEEN_BIT_BYTES = 2
NF4_RATE_DOUBT = 0.5
"""Relative error of the time that dequantisation takes. No measurement of bitsandbytes' kernels is
among the curves, so their bytes are taken at the rate of a copy. A judgement."""
NF4_NOTE = (
    "the base is kept in 4 bits: what dequantising it takes is that of its bytes, fitted to no"
    " measurement (its interval is wider for that)"
)


def with_frozen_base(profile: Profile) -> Profile:
    """Return the Profile whose step under autocast is that with 16-bit frozen parameters.

    Raises:
        KeyError: no such step was traced.
    """
    base = profile.step("frozen16").model_copy(update={"numerics": "amp16"})
    others = (one for one in profile.steps if one.numerics not in ("amp16", "frozen16"))
    return profile.model_copy(update={"steps": (base, *others)})


def quantised_bytes(profile: Profile) -> float:
    """Return how many bytes fewer parameters take with linear layers in 4 bits, not in 16."""
    linears = profile.frozen_linears
    return 0.0 if linears is None else (SIXTEEN_BIT_BYTES - NF4_BYTES) * linears.parameters


def saved_in_8_bits_bytes(setup: Setup, profile: Profile) -> float:
    """Return how many bytes fewer a rank holds where Megatron keeps frozen layers in 8 bits.

    Transformer Engine quantises them when the model is made, and makes the transposes of its
    backward pass anew, or needs none (Blackwell). NVFP4's two copies of 4 bits take as much.
    """
    linears = profile.frozen_linears
    if setup.stack != "megatron" or linears is None or not setup.features & {FP8_PARAMETERS, NVFP4}:
        return 0.0
    layout = setup.layout
    ranks = layout.tensor * layout.pipeline * (layout.shard if layout.zero_stage == 3 else 1)
    return (SIXTEEN_BIT_BYTES - 1) * linears.parameters / ranks


def dequantised_bytes(profile: Profile) -> float:
    """Return bytes of the largest weight in 16 bits, which is there while its layer runs."""
    linears = profile.frozen_linears
    return 0.0 if linears is None else SIXTEEN_BIT_BYTES * linears.largest


def dequantisation_traffic_bytes(profile: Profile) -> float:
    """Return bytes that dequantising every layer once reads and writes."""
    linears = profile.frozen_linears
    return 0.0 if linears is None else (NF4_BYTES + SIXTEEN_BIT_BYTES) * linears.parameters


def backward_dequantisations(policies: dict[Recompute, float]) -> float:
    """Return how often a backward pass dequantises a weight: once more where it is recomputed.

    Args:
        policies: shares of recompute policies; "selective" keeps every matrix product.
    """
    return 1.0 + policies.get("full", 0.0)


def why_not_kept(setup: Setup, accelerator: Accelerator) -> str | None:
    """Return why frozen parameters cannot be kept as a setup says, as a clause; None: they can."""
    frozen, layout, precision = setup.frozen_precision, setup.layout, setup.precision
    if frozen is None:
        return None
    if not precision.endswith("-amp"):
        return f"a {frozen} base is kept under mixed precision (bf16-amp), not with {precision}"
    if frozen == "bf16" and precision != "bf16-amp":
        return f"a bf16 base runs with bf16-amp, not with {precision}"
    if not setup.stack.startswith("torch") or setup.offload:
        return f"a {frozen} base is predicted for torch without offload"
    if not layout.is_data_parallel_only or not casts_layers(setup.stack, layout):
        return f"a {frozen} base is predicted for DDP, ZeRO-1 and one device, which {layout} is not"
    if frozen == "nf4" and accelerator.vendor != "NVIDIA":
        return f"bitsandbytes' 4-bit kernels are taken on NVIDIA alone, not {accelerator.name}"
    return None


def may_keep(
    frozen: FrozenPrecision,
    precision: Precision,
    accelerator: Accelerator,
    *,
    layout: Layout | None = None,
    offload: frozenset[Offloaded] = frozenset(),
) -> bool:
    """Return whether a step of torch in this precision can keep frozen parameters so."""
    setup = Setup(
        layout=layout or Layout(),
        precision=precision,
        micro_batch=1,
        offload=offload,
        frozen_precision=frozen,
    )
    return why_not_kept(setup, accelerator) is None
