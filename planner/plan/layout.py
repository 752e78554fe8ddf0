"""How a job is spread over accelerators: degrees of every parallelism, and their one-line form.

Standard library only, because the runner carries this file to the instances.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...catalog.errors import UsageError

FORM = "dp16, dp16.zero1, fsdp16, hsdp2x8, then any of .tp4 .sp .pp2 .vpp2 .cp2 .ep8"


@dataclass(frozen=True)
class Layout:
    """Degrees of parallelism; accelerators = data · tensor · pipeline · context.

    `shard` is how many ranks share one copy of the sharded state; `zero_stage` 3 is FSDP.
    """

    data: int = 1
    """Ranks that see different samples."""
    shard: int = 1
    """Ranks that share one copy of the sharded state."""
    zero_stage: int = 0
    """What is sharded: 0 nothing (DDP), 1 the optimizer, 2 gradients too, 3 parameters too."""
    tensor: int = 1
    """Ranks that share each matrix."""
    pipeline: int = 1
    """Stages of layers."""
    virtual_stages: int = 1
    """Groups of layers of one stage."""
    context: int = 1
    """Ranks that share each sequence."""
    expert: int = 1
    """Ranks that share the experts."""
    sequence_parallel: bool = False
    """Whether tensor-parallel ranks split norms along the sequence."""

    def __post_init__(self) -> None:
        degrees = ("data", "shard", "tensor", "pipeline", "virtual_stages", "context", "expert")
        for name in degrees:
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; a degree is 1 or more")
        if self.zero_stage not in (0, 1, 2, 3):
            raise ValueError(f"zero_stage is {self.zero_stage}; it is 0, 1, 2 or 3")
        if (self.data * self.context) % self.shard:
            raise ValueError(
                f"shard {self.shard} does not divide data {self.data} x context {self.context}"
            )
        if (self.context * self.data * self.tensor) % self.expert:
            raise ValueError(
                f"expert {self.expert} does not divide data {self.data} x context {self.context}"
                f" x tensor {self.tensor}"
            )

    @property
    def accelerators(self) -> int:
        """How many accelerators the layout occupies."""
        return self.data * self.tensor * self.pipeline * self.context

    @property
    def replicas(self) -> int:
        """How many whole copies of the sharded state there are (HSDP's outer degree)."""
        return self.data * self.context // self.shard

    @property
    def is_data_parallel_only(self) -> bool:
        """Whether nothing but the data dimension is split."""
        return self.tensor == self.pipeline == self.context == self.expert == 1

    def __str__(self) -> str:
        """Return the one-line form, as `parse_layout` reads it."""
        parts = [self._data_part()]
        if self.tensor > 1:
            parts.append(f"tp{self.tensor}")
        if self.sequence_parallel:
            parts.append("sp")
        if self.pipeline > 1:
            parts.append(f"pp{self.pipeline}")
        if self.virtual_stages > 1:
            parts.append(f"vpp{self.virtual_stages}")
        if self.context > 1:
            parts.append(f"cp{self.context}")
        if self.expert > 1:
            parts.append(f"ep{self.expert}")
        if self.zero_stage and self.shard != self._default_shard(parts[0]):
            parts.insert(1, f"shard{self.shard}")
        return ".".join(parts)

    def _data_part(self) -> str:
        if self.zero_stage == 0:
            return f"dp{self.data}"
        if self.zero_stage < 3:
            return f"dp{self.data}.zero{self.zero_stage}"
        if self.shard < self.data and self.data % self.shard == 0:
            return f"hsdp{self.data // self.shard}x{self.shard}"
        return f"fsdp{self.data}"

    def _default_shard(self, data_part: str) -> int:
        if data_part.startswith("hsdp"):
            return self.shard
        return self.data * self.context


_DATA_FORMS = (
    (re.compile(r"dp(\d+)"), lambda m: {"data": int(m[1])}),
    (
        re.compile(r"(?:fsdp)(\d+)"),
        lambda m: {"data": int(m[1]), "zero_stage": 3},
    ),
    (
        re.compile(r"hsdp(\d+)x(\d+)"),
        lambda m: {"data": int(m[1]) * int(m[2]), "shard": int(m[2]), "zero_stage": 3},
    ),
)
_OTHER_FORMS = {
    "tp": "tensor",
    "pp": "pipeline",
    "vpp": "virtual_stages",
    "cp": "context",
    "ep": "expert",
    "shard": "shard",
}


def parse_layout(text: str) -> Layout:
    """Return the Layout that its one-line form names, such as `hsdp2x8.tp4.sp`.

    Raises:
        UsageError: the text is not of that form, or its degrees do not fit together.
    """
    head, *rest = text.strip().lower().split(".")
    fields = _parse_data(head, text)
    sequence_parallel = False
    for part in rest:
        zero = re.fullmatch(r"zero([0-3])", part)
        other = re.fullmatch(r"(tp|pp|vpp|cp|ep|shard)(\d+)", part)
        if zero:
            fields["zero_stage"] = int(zero[1])
        elif part == "sp":
            sequence_parallel = True
        elif other:
            fields[_OTHER_FORMS[other[1]]] = int(other[2])
        else:
            raise UsageError(f"Layout {text!r} has a part {part!r}.", fix=f"write it as {FORM}.")
    if fields.get("zero_stage") and "shard" not in fields:
        fields["shard"] = fields["data"] * fields.get("context", 1)
    try:
        return Layout(sequence_parallel=sequence_parallel, **fields)
    except ValueError as error:
        raise UsageError(
            f"Layout {text!r} does not fit together: {error}.", fix=f"write it as {FORM}."
        ) from None


def _parse_data(head: str, text: str) -> dict[str, int]:
    for pattern, fields in _DATA_FORMS:
        match = pattern.fullmatch(head)
        if match:
            return fields(match)
    raise UsageError(f"Layout {text!r} does not start with dp, fsdp or hsdp.", fix=f"write {FORM}.")
