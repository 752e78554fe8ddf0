"""The weights of a checkpoint as files that others read, without its optimizer and without a GPU.

| format | what is written |
|---|---|
| safetensors | every parameter and buffer under the model's own name; a tied weight once |
| huggingface | the same with a config.json, for `from_pretrained`; adapters of `--lora` merged |
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

from ....catalog.errors import GpuplanError, UsageError
from ..checkpoint.digests import why_damaged
from ..checkpoint.reading import FAILURES, reason
from ..checkpoint.safe_reading import CheckpointReader, load
from .files import METADATA
from .formats import HUGGING_FACE, SAFETENSORS, WeightDtype, WeightFormat
from .model_facts import ADAPTERS, CONFIG, TIED, WEIGHTS
from .writing import Output, write_weights

MODEL = "model."
"""Before the names of the model in a checkpoint."""
CONFIG_FILE = "config.json"
TORCH_DTYPES: dict[WeightDtype, torch.dtype] = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}
BESIDE = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "tokenizer.model"),
    *("vocab.json", "vocab.txt", "merges.txt", "added_tokens.json", "chat_template.jinja"),
    *("generation_config.json", "preprocessor_config.json"),
)
"""Files of a Hugging Face folder that training does not change."""


@dataclass(frozen=True, kw_only=True)
class Written:
    """What an export wrote."""

    files: tuple[Path, ...]
    parameters: int
    """Values in all tensors, buffers included, a tied weight counted once."""
    size_bytes: int
    """Of all tensors."""
    tied: dict[str, str]
    """Names that were left out → the name that has their weight."""


def write_export(
    checkpoint: Path,
    folder: Path,
    facts: Mapping[str, Any],
    *,
    form: WeightFormat,
    max_file_bytes: int,
    dtype: WeightDtype | None = None,
) -> Written:
    """Write the weights of a checkpoint into a folder that exists and is empty.

    Memory: the largest tensor, or 256 MB where that is more; the optimizer is not read.

    Args:
        checkpoint: a whole one.
        folder: for the files.
        facts: of its `run.json`.
        form: `safetensors` or `huggingface`.
        max_file_bytes: of tensors in one file.
        dtype: of floating-point weights; None: as they were trained.

    Raises:
        UsageError: the run's model is not one of transformers, and `huggingface` is asked for.
        GpuplanError: the checkpoint is damaged.
        OSError: it cannot be written.
    """
    config = facts.get(CONFIG)
    if form == HUGGING_FACE and not isinstance(config, dict):
        raise UsageError(
            f"{checkpoint} holds no config of transformers: build_model() of the run returned no"
            " model of transformers, or an earlier version of gpuplan wrote it.",
            fix="give --to safetensors; or return transformers' model itself from build_model().",
        )
    changed = why_damaged(checkpoint, facts)
    if changed is not None:
        raise _damaged(checkpoint, changed)
    stored = _stored(checkpoint)
    tied = _tied(facts, stored)
    merged = facts.get(ADAPTERS) or {} if form == HUGGING_FACE else {}
    outputs = _outputs(stored, tied, merged, None if dtype is None else TORCH_DTYPES[dtype])
    metadata = {"format": "pt"} | (tied if form == SAFETENSORS else {})
    metadata.pop(METADATA, None)
    files = write_weights(
        folder,
        outputs,
        lambda names: _read(checkpoint, stored, names),
        stem="model",
        max_file_bytes=max_file_bytes,
        metadata=metadata,
    )
    if form == HUGGING_FACE:
        assert isinstance(config, dict)
        files += _beside(folder, config, outputs, facts.get(WEIGHTS))
    return Written(
        files=tuple(files),
        parameters=sum(math.prod(one.shape) for one in outputs),
        size_bytes=sum(one.size_bytes for one in outputs),
        tied=tied,
    )


def _stored(checkpoint: Path) -> dict[str, TensorStorageMetadata]:
    """Return what a checkpoint holds of its model, by name."""
    try:
        found = CheckpointReader(checkpoint).read_metadata().state_dict_metadata
    except FAILURES as error:
        raise _damaged(checkpoint, reason(error)) from None
    return {
        name.removeprefix(MODEL): one
        for name, one in found.items()
        if name.startswith(MODEL) and isinstance(one, TensorStorageMetadata)
    }


def _read(
    checkpoint: Path, stored: Mapping[str, TensorStorageMetadata], names: Sequence[str]
) -> dict[str, Tensor]:
    """Return tensors of a checkpoint by name, whole, on the processor."""
    model = {
        name: torch.empty(stored[name].size, dtype=stored[name].properties.dtype) for name in names
    }
    try:
        load({"model": model}, checkpoint, no_dist=True)
    except FAILURES as error:
        raise _damaged(checkpoint, reason(error)) from None
    return model


def _tied(facts: Mapping[str, Any], stored: Mapping[str, Any]) -> dict[str, str]:
    groups = [[name for name in group if name in stored] for group in facts.get(TIED) or ()]
    return {name: group[0] for group in groups for name in group[1:]}


def _outputs(
    stored: Mapping[str, TensorStorageMetadata],
    tied: Mapping[str, str],
    merged: Mapping[str, Mapping[str, Any]],
    dtype: torch.dtype | None,
) -> list[Output]:
    outputs: list[Output] = []
    for name, one in stored.items():
        path = next((path for path in merged if name.startswith(f"{path}.")), None)
        inside = None if path is None else name.removeprefix(f"{path}.")
        if name in tied or inside in ("down.weight", "up.weight"):
            continue
        floating = one.properties.dtype.is_floating_point
        chosen = dtype if floating and dtype is not None else one.properties.dtype
        if path is not None and inside == "base.weight":
            outputs.append(_merged(path, stored, merged[path], chosen))
            continue
        outputs.append(
            Output(
                name=name if inside is None else f"{path}.{inside.removeprefix('base.')}",
                shape=tuple(one.size),
                dtype=chosen,
                sources=(name,),
                source_bytes=_bytes(one),
                make=lambda found, name=name: found[name],
            )
        )
    return outputs


def _merged(
    path: str,
    stored: Mapping[str, TensorStorageMetadata],
    adapter: Mapping[str, Any],
    dtype: torch.dtype,
) -> Output:
    """Return a layer's weight with its adapter added, as Hu et al. 2021 (arXiv:2106.09685) do."""
    base, down, up = (f"{path}.{one}.weight" for one in ("base", "down", "up"))

    def make(found: Mapping[str, Tensor]) -> Tensor:
        added = found[up].float() @ found[down].float() * float(adapter["scale"])
        return found[base].float() + (added.T if adapter["is_transposed"] else added)

    return Output(
        name=f"{path}.weight",
        shape=tuple(stored[base].size),
        dtype=dtype,
        sources=(base, down, up),
        source_bytes=sum(_bytes(stored[name]) for name in (base, down, up)),
        make=make,
    )


def _bytes(one: TensorStorageMetadata) -> int:
    return math.prod(one.size) * one.properties.dtype.itemsize


def _beside(
    folder: Path, config: Mapping[str, Any], outputs: Sequence[Output], weights: str | None
) -> list[Path]:
    """Write the config of the weights, and copy the tokenizer of those that the run began from."""
    floating = [one.dtype for one in outputs if one.dtype.is_floating_point]
    known = {key: value for key, value in config.items() if key != "torch_dtype"}
    known |= {"dtype": str(floating[0]).removeprefix("torch.")} if floating else {}
    path = folder / CONFIG_FILE
    path.write_text(json.dumps(known, indent=2) + "\n", encoding="utf-8")
    if weights is None:
        return [path]
    source = Path(weights) if Path(weights).is_dir() else Path(weights).parent
    found = [name for name in BESIDE if (source / name).is_file()]
    return [path, *(Path(shutil.copyfile(source / name, folder / name)) for name in found)]


def _damaged(checkpoint: Path, problem: str) -> GpuplanError:
    return GpuplanError(
        f"{checkpoint} could not be read: {problem}",
        fix="export another checkpoint of the run with --checkpoint.",
    )
