"""A Hugging Face config as a workload: the architecture it names, with random weights.

Needs transformers (the `hf` extra). Nothing is downloaded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers

from ....catalog.errors import UsageError, UserFileError, did_you_mean
from ..checks import Batch, checked_model, default_loss, default_optimizer
from ..lora import add_adapters
from ..lora_settings import LORA, parse_lora
from ..spec import ModelSpec
from ..workload import Workload

LONGEST_DEFAULT_SEQ_LEN = 4096
_LENGTH_KEYS = ("max_position_embeddings", "n_positions", "max_sequence_length", "max_seq_len")


def workload(spec: ModelSpec) -> Workload:
    """Return the workload of the model that a config.json describes.

    `--param seq_len=…` sets the length of the batches, `--lora` (the param "lora") freezes the
    model and puts adapters beside its layers; other params replace a key of the config.
    """
    config = _config(spec)
    model_class = _model_class(config, spec)
    task = _task(model_class.__name__)
    is_text = task is not _images
    seq_len = _seq_len(config, spec) if is_text else None

    lora = parse_lora(str(spec.params[LORA])) if LORA in spec.params else None

    def build_model() -> torch.nn.Module:
        model = checked_model(model_class(config), f"{model_class.__name__}()")
        if lora is not None:
            add_adapters(model, lora)
            # It names layers that now stand inside adapters.
            model._tp_plan = {}  # pyright: ignore[reportAttributeAccessIssue, reportArgumentType]
        return model

    return Workload(
        name=spec.name,
        path=spec.path,
        params=dict(spec.params),
        build_model=build_model,
        make_batch=lambda batch_size: task(config, batch_size, seq_len or 0),
        compute_loss=default_loss,
        build_optimizer=default_optimizer,
        tokens_per_sample=float(seq_len) if seq_len else None,
    )


def _config(spec: ModelSpec) -> Any:
    try:
        config = transformers.AutoConfig.from_pretrained(spec.path, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).split("\n")[0]
        raise UserFileError(
            f"{spec.path.name} is not a config that transformers {transformers.__version__}"
            f" knows: {reason}",
            fix="give the config.json of a model that this version of transformers includes.",
        ) from None
    text = config.get_text_config()
    for key, value in spec.params.items():
        if key in ("seq_len", LORA):
            continue
        holder = config if hasattr(config, key) else text
        if not hasattr(holder, key):
            known = {*config.to_dict(), *text.to_dict(), "seq_len"}
            raise UsageError(
                f"The config has no key {key!r}.{did_you_mean(key, known)}",
                fix="use seq_len or a key of the config.json, such as num_hidden_layers.",
            )
        setattr(holder, key, value)
    # The cache of keys and values belongs to generation; training with it would hold memory.
    text.use_cache = False
    return config


def _model_class(config: Any, spec: ModelSpec) -> Callable[[Any], torch.nn.Module]:
    names = config.architectures or []
    found = getattr(transformers, names[0], None) if names else None
    if found is not None:
        return found
    given = f"names {names[0]}, not an architecture" if names else "names no architecture"
    raise UserFileError(
        f"{spec.path.name} {given} that transformers {transformers.__version__} includes.",
        fix='set "architectures" in it, such as ["LlamaForCausalLM"].',
    )


def _task(name: str) -> Callable[[Any, int, int], Batch]:
    for ending, task in _TASKS.items():
        if name.endswith(ending):
            return task
    raise UserFileError(
        f"gpuplan does not know what {name} is trained on.",
        fix="use one of the kinds "
        + ", ".join(sorted(_TASKS))
        + ", or write a model file with build_model() and make_batch().",
    )


def _seq_len(config: Any, spec: ModelSpec) -> int:
    given = spec.params.get("seq_len")
    if given is not None:
        if isinstance(given, int) and not isinstance(given, bool) and given > 0:
            return given
        raise UsageError(
            f"--param seq_len={given} is not a number of tokens.",
            fix="give a whole number above 0, such as --param seq_len=2048.",
        )
    text = config.get_text_config()
    lengths = [getattr(text, key, None) for key in _LENGTH_KEYS]
    longest = next((one for one in lengths if isinstance(one, int) and one > 0), None)
    return min(longest or LONGEST_DEFAULT_SEQ_LEN, LONGEST_DEFAULT_SEQ_LEN)


def _ids(config: Any, batch_size: int, seq_len: int) -> torch.Tensor:
    return torch.randint(config.get_text_config().vocab_size, (batch_size, seq_len))


def _labelled_tokens(config: Any, batch_size: int, seq_len: int) -> Batch:
    return {
        "input_ids": _ids(config, batch_size, seq_len),
        "labels": _ids(config, batch_size, seq_len),
    }


def _pretraining(config: Any, batch_size: int, seq_len: int) -> Batch:
    batch = _labelled_tokens(config, batch_size, seq_len)
    assert isinstance(batch, dict)
    return batch | {"next_sentence_label": torch.randint(2, (batch_size,))}


def _token_classes(config: Any, batch_size: int, seq_len: int) -> Batch:
    labels = torch.randint(config.num_labels, (batch_size, seq_len))
    return {"input_ids": _ids(config, batch_size, seq_len), "labels": labels}


def _sequences(config: Any, batch_size: int, seq_len: int) -> Batch:
    labels = torch.randint(config.num_labels, (batch_size,))
    return {"input_ids": _ids(config, batch_size, seq_len), "labels": labels}


def _spans(config: Any, batch_size: int, seq_len: int) -> Batch:
    return {
        "input_ids": _ids(config, batch_size, seq_len),
        "start_positions": torch.randint(seq_len, (batch_size,)),
        "end_positions": torch.randint(seq_len, (batch_size,)),
    }


def _images(config: Any, batch_size: int, _seq_len: int) -> Batch:
    size = getattr(config, "image_size", None) or 224
    height, width = size if isinstance(size, list | tuple) else (size, size)
    channels = getattr(config, "num_channels", None) or 3
    return {
        "pixel_values": torch.randn(batch_size, channels, height, width),
        "labels": torch.randint(config.num_labels, (batch_size,)),
    }


_TASKS: dict[str, Callable[[Any, int, int], Batch]] = {
    "ForCausalLM": _labelled_tokens,
    "LMHeadModel": _labelled_tokens,
    "ForMaskedLM": _labelled_tokens,
    "ForConditionalGeneration": _labelled_tokens,
    "BertForPreTraining": _pretraining,
    "ForTokenClassification": _token_classes,
    "ForSequenceClassification": _sequences,
    "ForQuestionAnswering": _spans,
    "ForImageClassification": _images,
}
