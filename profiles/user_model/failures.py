"""What a user's code raised, as one clear error with their own line. Standard library only."""

from __future__ import annotations

import json
import linecache
import re
import site
import sys
import sysconfig
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType

from ...catalog import errors
from ...catalog.errors import GpuplanError, UserFileError
from .file_text import syntax_error

MESSAGE_LINES = 8
NAMES_OF_FOLDERS = """common config configs core data_utils dataset ext helpers layers ldm lib libs
losses model models modules nets network networks op ops src tools util utils"""
"""What projects call folders of their own, of which packages of those names hold other things."""
PACKAGE_OF_MODULE: dict[str, str] = {
    "cv2": "opencv-python",
    "PIL": "pillow",
    "sklearn": "scikit-learn",
    "skimage": "scikit-image",
    "yaml": "pyyaml",
    "pytorch_lightning": "pytorch-lightning",
    "segmentation_models_pytorch": "segmentation-models-pytorch",
}
"""Modules whose package on PyPI has another name."""


NO_INTEGERS = ("'indices'", "scalar types")
"""Of torch's message that an embedding was given floats."""
INTEGERS = (
    "an embedding takes integers, as torch.randint() makes them in make_batch(), or --input"
    " 128:int64."
)
UNTRACED_OPERATOR = re.compile(r"no rule registered for HigherOrderOperator (\w+)")
"""Of torch's message that a trace met an operator that runs functions it is given, such as cond."""
WITHOUT_OPERATOR = (
    "for an estimate, where values do not matter, write there in plain calls what they do: of"
    " torch.cond the branch that is taken most, of while_loop and scan a loop of as many rounds."
)
_PLAIN_CALLS = (
    "for an estimate, where values do not matter, write there torch calls of the same shapes; for a"
    " training install it where that runs."
)
BUILT_FOR_CUDA = {
    **dict.fromkeys(
        (
            "causal_conv1d",
            "flash_attn",
            "flash_attn_interface",
            "mamba_ssm",
            "transformer_engine",
            "xformers",
        ),
        _PLAIN_CALLS,
    ),
    "triton": _PLAIN_CALLS,
    "apex": f"NVIDIA's apex is not the package of that name on PyPI: {_PLAIN_CALLS}",
}
"""Packages that no machine without a GPU has, and what to do about them."""
SETTINGS = (".yaml", ".yml", ".json", ".toml", ".ini", ".cfg")
"""Files of a model's shapes, which an estimate needs."""
LOADS = "from_pretrained"
WITHOUT_FILE = (
    "for an estimate, leave out what it reads: values of weights and data do not matter there, only"
    " shapes (pretrained_weights() names the weights that a run starts from)."
)
"""A checkpoint or a data set that is on another machine."""
FROM_CONFIG = (
    "for an estimate, where values do not matter, make the model from its config: by from_config()"
    " or the class itself, or with `gpuplan estimate hf:OWNER/MODEL`, --lora for adapters."
)


@dataclass(frozen=True, kw_only=True)
class UserLine:
    """A line of the user's own code that was running."""

    file: str
    number: int
    function: str
    source: str

    @property
    def where(self) -> str:
        """Return "model.py:12, in build_model"."""
        inside = "" if self.function == "<module>" else f", in {self.function}"
        return f"{self.file}:{self.number}{inside}"

    @property
    def shown(self) -> str:
        """Return the line itself, to follow a message."""
        return f"\n    {self.number} | {self.source}" if self.source else ""


MIXED_DTYPES = "takes tensors of one dtype"
"""Of the message of a trace that meets two."""
UNDER_AUTOCAST = (
    "or, where your training runs under autocast, as a Trainer with bf16=True does, give"
    " --precision bf16-amp or write torch.autocast in compute_loss()."
)
"""Weights of two dtypes (a base in bf16, adapters in fp32) multiply under autocast alone, which a
file without its Trainer does not show."""


def describe_failure(
    error: BaseException, path: Path, params: Mapping[str, object] | None = None
) -> GpuplanError:
    """Return the error for the user, from whatever loading and tracing a user's file raised.

    Args:
        error: What was raised, with its traceback.
        path: The user's file; frames in its folder (not in installed packages) are theirs.
        params: What was given to its functions, which may be at fault.
    """
    if isinstance(error, GpuplanError):
        return error
    if isinstance(error, SyntaxError) and error.lineno and is_users(error.filename or "", path):
        return syntax_error(error, path)
    place = user_line(error.__traceback__, path)
    where = f"{place.where}: " if place else ""
    shown = place.shown if place else ""
    if isinstance(error, SystemExit):
        return UserFileError(
            f"{where or path.name + ' '}called sys.exit({_exit_argument(error)}), which leaves"
            f" nothing to trace.{shown}",
            fix='put what runs as a script under `if __name__ == "__main__":`.',
        )
    if isinstance(error, ModuleNotFoundError) and error.name and not _is_ours(error.name):
        return _missing_module(error.name, where, shown, path)
    what = f"{type(error).__name__}: {_shortened(str(error))}".rstrip(": ")
    operator = UNTRACED_OPERATOR.search(str(error))
    if place and operator:
        cannot = f"torch's {operator[1]} is given functions to run, which gpuplan cannot trace."
        return UserFileError(f"{where}{cannot}{shown}", fix=WITHOUT_OPERATOR)
    if place and _in_package(error.__traceback__, "triton"):
        return UserFileError(
            f"{where}runs a kernel of Triton, which needs a device.{shown}", fix=_PLAIN_CALLS
        )
    if place:
        return UserFileError(f"{where}{what}{shown}", fix=_fix(error, what, place, params or {}))
    if _passed_the_model(error.__traceback__):
        return UserFileError(
            f"{path.name} failed while its model ran: {what}",
            fix="check that make_batch() gives what the model's forward() takes; where the loss is"
            " made outside it, add compute_loss(model, batch) to the file.",
        )
    return GpuplanError(
        f"gpuplan failed on {path.name}: {what}",
        fix="this is a fault of gpuplan; report it with the output of the same command with -v.",
    )


def _fix(error: BaseException, what: str, place: UserLine, params: Mapping[str, object]) -> str:
    """Return how to fix what a line of the user's file raised."""
    given = " ".join(f"--param {name}={value}" for name, value in params.items())
    correct = f"correct {place.file}{given and f', or {given}'}"
    if isinstance(error, ImportError) and "attempted relative import" in what:
        return (
            f"correct {place.file}: it is run as a file, beside which its folder is searched, so"
            " that `from .layers import Block` is `from layers import Block`; in a package, which"
            " has an __init__.py, dots are allowed."
        )
    if isinstance(error, ImportError) and "cannot import name" not in what:
        return f"install what it asks for beside gpuplan, or correct {place.file}."
    if MIXED_DTYPES in what:
        return f"correct {place.file}; {UNDER_AUTOCAST}"
    if all(word in what for word in NO_INTEGERS):
        return f"{correct}: {INTEGERS}"
    if isinstance(error, OSError) and str(error.filename).endswith(SETTINGS):
        return f"{correct}; it is run in the current folder, where relative paths begin."
    if isinstance(error, OSError):
        return f"{correct}, or {FROM_CONFIG if LOADS in place.source else WITHOUT_FILE}"
    return f"{correct}, then run this again."


def user_line(trace: TracebackType | None, path: Path) -> UserLine | None:
    """Return the deepest frame of the user's own code; None if no frame is theirs."""
    own = [
        (frame, number)
        for frame, number in traceback.walk_tb(trace)
        if is_users(frame.f_code.co_filename, path)
    ]
    if not own:
        return None
    return line_of(*own[-1], path)


def line_of(frame: FrameType, number: int, path: Path | None) -> UserLine:
    """Return a line of a frame; its file is named from the folder of the user's file."""
    file = Path(frame.f_code.co_filename)
    return UserLine(
        file=_relative(file, path) if path else str(file),
        number=number,
        function=frame.f_code.co_name,
        source=linecache.getline(str(file), number).strip(),
    )


def is_users(filename: str, path: Path) -> bool:
    """Return whether a source file is the user's own: in their folder, in no installed package."""
    if not filename or filename.startswith("<"):
        return False
    file = Path(filename).absolute()
    if file == path:
        return True
    inside = file.is_relative_to(path.parent)
    return inside and not any(file.is_relative_to(folder) for folder in (*_INSTALLED, *_OURS))


def to_json(error: GpuplanError) -> str:
    """Return an error as JSON, to cross from the child process."""
    return json.dumps({"class": type(error).__name__, "message": error.message, "fix": error.fix})


def from_json(text: str) -> GpuplanError:
    """Return the error that `to_json` wrote, of the same class."""
    values = json.loads(text)
    found = getattr(errors, values["class"], GpuplanError)
    return found(values["message"], fix=values["fix"])


def _installed_folders() -> tuple[Path, ...]:
    folders = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    folders |= {*site.getsitepackages(), site.getusersitepackages()}
    return tuple(Path(one) for one in folders if one)


_INSTALLED = _installed_folders()
_OURS = tuple(
    Path(__file__).parents[2] / name for name in ("catalog", "planner", "profiles", "launcher")
)
"""The runner's copy of them may lie beside the user's file."""


def _is_ours(module: str) -> bool:
    return module.split(".")[0] == __name__.split(".")[0]


def _in_package(trace: TracebackType | None, package: str) -> bool:
    """Return whether an error was raised in a package, by the names of its modules."""
    names = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(trace)]
    return bool(names) and names[-1].split(".")[0] == package


def _passed_the_model(trace: TracebackType | None) -> bool:
    """Return whether torch's module call is on the stack: then it is the model that failed."""
    return any(
        frame.f_code.co_name == "_call_impl"
        and frame.f_globals.get("__name__", "").startswith("torch")
        for frame, _ in traceback.walk_tb(trace)
    )


def _missing_module(name: str, where: str, shown: str, path: Path) -> UserFileError:
    top = name.split(".")[0]
    local = path.parent / top
    if local.is_dir() or local.with_suffix(".py").exists():
        return UserFileError(
            f"{where}there is no module {name} beside {path.name}.{shown}",
            fix="check the name of the module.",
        )
    if top in BUILT_FOR_CUDA:
        return UserFileError(
            f"{where}the module {name} is not installed, and is built for CUDA.{shown}",
            fix=BUILT_FOR_CUDA[top],
        )
    if name != top and top in sys.modules:
        return UserFileError(
            f"{where}the installed {top} has no module {name}.{shown}",
            fix=f"install a version of {top} that has it, or of what imports it that does not.",
        )
    if top in NAMES_OF_FOLDERS.split():
        return UserFileError(
            f"{where}the module {top} is not installed.{shown}",
            fix=f"if {top} is a folder of your project, put {path.name} beside it, or set"
            " PYTHONPATH to the folder that holds it.",
        )
    return UserFileError(
        f"{where}the module {top} is not installed.{shown}",
        fix=f"pip install {PACKAGE_OF_MODULE.get(top, top)}    (into {sys.prefix})",
    )


def _exit_argument(error: SystemExit) -> str:
    return "" if error.code is None else repr(error.code)


def _relative(file: Path, path: Path) -> str:
    return str(file.relative_to(path.parent)) if file.is_relative_to(path.parent) else str(file)


def _shortened(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    kept = lines[:MESSAGE_LINES]
    return "\n    ".join(kept) + (" …" if len(lines) > len(kept) else "")
