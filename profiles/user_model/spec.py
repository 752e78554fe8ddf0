"""What the user names as the model: a file, a class in a file, a Hugging Face config, a Profile.

Standard library only: the command line reads it before torch is needed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from ...catalog.errors import UsageError, did_you_mean
from .assumptions import Assumption, parse_assumptions
from .lora_settings import with_lora

DEFAULT_TIMEOUT_S = 120.0
SpecKind = Literal["file", "hf", "profile"]
INPUT_DTYPES: dict[str, str] = {
    "float": "float32",
    "float32": "float32",
    "float16": "float16",
    "bfloat16": "bfloat16",
    "int": "int64",
    "int64": "int64",
    "long": "int64",
    "int32": "int32",
    "uint8": "uint8",
    "bool": "bool",
}
"""Names that `--input` takes after the shape → the torch dtype."""


@dataclass(frozen=True, kw_only=True)
class InputShape:
    """One tensor that the model's `forward` takes, without its batch dimension."""

    shape: tuple[int, ...]
    dtype: str = "float32"

    @property
    def text(self) -> str:
        """Return the shape as `--input` takes it."""
        return f"{','.join(map(str, self.shape))}:{self.dtype}"


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """The model that a question is about, as typed, with the params for its functions.

    `text` is `model.py`, `model.py:ClassName`, `hf:<folder or config.json>` or `profile.json`.
    """

    text: str
    kind: SpecKind
    path: Path
    """Absolute."""
    class_name: str | None = None
    params: dict[str, Any] = field(default_factory=dict)
    inputs: tuple[InputShape, ...] = ()
    timeout_s: float = DEFAULT_TIMEOUT_S
    assumptions: tuple[Assumption, ...] = ()
    """What is taken for values of tensors, which a trace does not know."""

    @property
    def name(self) -> str:
        """Return a short name for tables: the file's, the class's or the folder's."""
        if self.class_name:
            return self.class_name
        is_folder_name = self.kind == "hf" and self.path.name == "config.json"
        return self.path.parent.name if is_folder_name else self.path.stem

    @property
    def named(self) -> str:
        """Return the model as it can be named in any folder."""
        if self.kind == "hf":
            return f"hf:{self.path}"
        return f"{self.path}:{self.class_name}" if self.class_name else str(self.path)

    def to_json(self) -> str:
        """Return the spec as one line of JSON, for the child process."""
        return json.dumps(asdict(self) | {"assumptions": self.assumed}, default=str)

    @property
    def assumed(self) -> dict[str, bool | int | str]:
        """Return what is assumed at each line, as `parse_assumptions` takes it."""
        return {
            each.place: each.value if isinstance(each.value, bool) else each.value.text
            for each in self.assumptions
        }

    @classmethod
    def from_json(cls, text: str) -> ModelSpec:
        """Return the spec that `to_json` wrote."""
        values = json.loads(text)
        values["path"] = Path(values["path"])
        values["inputs"] = tuple(
            InputShape(shape=tuple(item["shape"]), dtype=item["dtype"]) for item in values["inputs"]
        )
        # A spec that an earlier version kept has none.
        values["assumptions"] = parse_assumptions(values.get("assumptions") or {})
        return cls(**values)


def parse_model_spec(
    text: str,
    *,
    params: Mapping[str, Any] | None = None,
    inputs: Iterable[str] = (),
    timeout_s: float = DEFAULT_TIMEOUT_S,
    lora: str | None = None,
    assume: Mapping[str, bool | int | str] | None = None,
) -> ModelSpec:
    """Return the spec of a model named on the command line or in a call.

    Args:
        text: `model.py`, `model.py:ClassName`, `hf:<folder or config.json>` or `profile.json`.
        params: Values for the file's functions, parsed already.
        inputs: Shapes without the batch dimension, such as "3,224,224" or "128:int64".
        timeout_s: Longest time that the file may take to load, and each traced step of it.
        lora: Adapters of an `hf:` model, such as "r=16,targets=q_proj+v_proj"; in the spec they
            are its param "lora".
        assume: What is taken for values of tensors (see `parse_assumptions`).

    Raises:
        UsageError: nothing readable is there, or a shape, the time limit, the adapters or what is
            assumed make no sense.
    """
    if not timeout_s > 0:
        raise UsageError(
            f"The time limit is {timeout_s:g} seconds; it must be more than 0.",
            fix="leave --timeout out (120 seconds) or give a larger number.",
        )
    kind, place, class_name = _split(text)
    path = _readable(place, kind)
    return ModelSpec(
        text=text,
        kind=kind,
        path=path,
        class_name=class_name,
        params=with_lora(kind, text, path, params or {}, lora),
        inputs=tuple(parse_input(item) for item in inputs),
        timeout_s=float(timeout_s),
        assumptions=parse_assumptions(assume or {}),
    )


def refuse_unreadable(spec: ModelSpec) -> None:
    """Refuse a model whose file is gone, or cannot be opened, since it was named.

    Raises:
        UsageError: it is.
    """
    _readable(str(spec.path), spec.kind)


def parse_params(items: Iterable[str]) -> dict[str, Any]:
    """Return the values of `--param key=value` options: JSON where they parse, else strings.

    Raises:
        UsageError: an item is not `key=value`, has no value, or a key comes twice.
    """
    params: dict[str, Any] = {}
    for item in items:
        key, equals, value = item.partition("=")
        key = key.strip().replace("-", "_")
        if not equals or not key.isidentifier():
            raise UsageError(
                f"--param {item} is not of the form key=value.",
                fix="write for example --param layers=24 (the key is an argument of build_model).",
            )
        if not value.strip():
            raise UsageError(
                f"--param {key}= has no value.",
                fix=f"write for example --param {key}=24; an empty text is --param '{key}=\"\"'.",
            )
        if key in params:
            raise UsageError(f"--param {key} is given twice.", fix=f"keep one --param {key}=….")
        params[key] = _value(value)
    return params


def parse_input(text: str) -> InputShape:
    """Return the shape that `--input 3,224,224`, `--input 128:int64` or `--input :int64` gives.

    The last is one number a sample, such as a label.

    Raises:
        UsageError: a size is not a whole number above 0, or the dtype is unknown.
    """
    sizes, _, dtype = text.partition(":")
    one_number = bool(dtype) and not sizes.strip()
    if not (one_number or re.fullmatch(r"\s*[1-9]\d*\s*([,x]\s*[1-9]\d*\s*)*", sizes)):
        raise UsageError(
            f"--input {text} is not a shape.",
            fix="give the sizes of one sample without the batch, such as --input 3,224,224, or"
            " --input :int64 for one number, such as a label.",
        )
    if dtype and dtype not in INPUT_DTYPES:
        raise UsageError(
            f"--input {text}: there is no dtype {dtype!r}.{did_you_mean(dtype, INPUT_DTYPES)}",
            fix=f"use one of {', '.join(INPUT_DTYPES)}.",
        )
    shape = () if one_number else tuple(int(size) for size in re.split("[,x]", sizes))
    return InputShape(shape=shape, dtype=INPUT_DTYPES[dtype or "float32"])


def _split(text: str) -> tuple[SpecKind, str, str | None]:
    if text.startswith("hf:"):
        return "hf", text[len("hf:") :], None
    if text.endswith(".json"):
        return "profile", text, None
    place, colon, class_name = text.rpartition(":")
    if colon and place.endswith(".py") and class_name.isidentifier():
        return "file", place, class_name
    return "file", text, None


def _readable(place: str, kind: SpecKind) -> Path:
    """Return the absolute path of a file that can be opened."""
    if not place.strip():
        raise UsageError("No model is named: its name is empty.", fix=_fix_for_kind(kind))
    path = Path(place).expanduser().absolute()
    _refuse_other_encoding(path)
    if kind == "hf" and path.is_dir():
        path = path / "config.json"
    if path.is_dir():
        raise UsageError(f"{place} is a folder, not a model file.", fix=_fix_for_folder(place))
    try:
        if path.exists() and not path.is_file():
            raise UsageError(
                f"{place} is not a regular file, and gpuplan reads a model file more than once.",
                fix="save the model as a .py file.",
            )
        with path.open("rb"):
            pass
    except FileNotFoundError:
        raise UsageError(
            f"There is no file {place}.{_near(path)}", fix=_fix_for_kind(kind)
        ) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(
            f"{place} cannot be read: {reason}.", fix="check its permissions and its path."
        ) from None
    return path


def _refuse_other_encoding(path: Path) -> None:
    """Refuse a path that is not text in UTF-8: no JSON can hold it, and so no cache and no plan."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        # The bytes that are no text are surrogates in a str, which no terminal can show either.
        shown = str(path).encode(errors="surrogateescape").decode(errors="replace")
        raise UsageError(
            f"The path {shown} is not UTF-8.",
            fix="rename the file or folder, or run gpuplan with a UTF-8 locale (LC_ALL=C.UTF-8).",
        ) from None


def _near(path: Path) -> str:
    """Return " Did you mean model.py?" for the files beside it with nearly the same name."""
    try:
        siblings = [one.stem for one in path.parent.iterdir() if one.suffix == path.suffix]
    except OSError:
        return ""
    close = [f"{stem}{path.suffix}" for stem in get_close_matches(path.stem, siblings)]
    return f" Did you mean {' or '.join(close)}?" if close else ""


def _fix_for_kind(kind: SpecKind) -> str:
    if kind == "hf":
        return "give a folder that holds a config.json, or the config.json itself."
    return "give the path of your model file; `gpuplan init` writes one to start from."


def _fix_for_folder(place: str) -> str:
    folder = Path(place).expanduser()
    if (folder / "config.json").exists():
        return f"write hf:{place} to use its config.json."
    files = sorted(one.name for one in folder.glob("*.py"))[:5]
    if files:
        return f"name a file in it: {', '.join(files)}."
    return "give the path of a .py file; `gpuplan init` writes one to start from."


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return {"True": True, "False": False, "None": None}.get(text, text)
