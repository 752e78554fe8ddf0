"""One model of a library, traced by `gpuplan profile` in processes of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
KIB = 1024
SHOWN_CHARACTERS = 600
"""Of a message; the rest of a long one says how to state a value."""
MACS = sys.platform == "darwin"


@dataclass(frozen=True, kw_only=True)
class Model:
    """One named model, and how its file is asked for it."""

    package: str
    name: str
    file: Path
    params: Mapping[str, Any]
    options: tuple[str, ...] = ()
    """More options of `gpuplan profile`."""

    @property
    def label(self) -> str:
        """Return text that no other model has."""
        more = [str(value) for key, value in self.params.items() if key != "name"]
        return " ".join((f"{self.package}/{self.name}", *more))


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What came out of tracing one model."""

    package: str
    version: str
    name: str
    """With the values of its params other than its name."""
    file: str
    options: tuple[str, ...]
    traced: bool
    seconds: float
    """Of the whole command on the wall, the import of torch and of the library included."""
    cpu_s: float
    """The same of the processor, which other work on the machine hardly changes."""
    peak_memory_bytes: int
    """Largest resident set of its processes, as the kernel counts it."""
    parameters: int | None
    flops_per_sample: float | None
    notes: tuple[str, ...]
    message: str | None
    """Why it was refused."""

    def to_json(self) -> str:
        """Return the trial as one line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Trial:
        """Return the trial that `to_json` wrote."""
        values = json.loads(text)
        for name in ("options", "notes"):
            values[name] = tuple(values[name])
        return cls(**values)


def listed_models(path: Path = HERE / "models.toml") -> Iterator[Model]:
    """Yield every model that is to be traced."""
    for library in tomllib.loads(path.read_text(encoding="utf-8"))["library"]:
        for name in library["names"].split():
            named = {} if library.get("unnamed") else {"name": name}
            yield Model(
                package=library["package"],
                name=name,
                file=path.parent / "models" / library["file"],
                params=named | library.get("params", {}),
                options=tuple(library.get("options", ())),
            )


def trace(model: Model, *, limit_s: float) -> Trial:
    """Return what came out of `gpuplan profile` for one model, ended after a time limit."""
    folder = model.file.parent
    params = [f"--param={key}={value}" for key, value in model.params.items()]
    with tempfile.TemporaryDirectory() as home:
        answer, errors = Path(home, "profile.json"), Path(home, "errors")
        command = [sys.executable, "-m", "gpuplan", "profile", model.file, *params]
        command += [*model.options, "--no-cache", "--quiet", f"--timeout={limit_s:g}"]
        command += ["--format=json", f"--out-file={answer}"]
        started_s = time.perf_counter()
        with errors.open("wb") as stream:
            ended = _run(command, stream, limit_s)
        seconds = time.perf_counter() - started_s
        profile = json.loads(answer.read_text()) if ended.code == 0 else {}
        printed = errors.read_text(errors="replace")
    return Trial(
        package=model.package,
        version=version(model.package),
        name=model.label.partition("/")[2],
        file=model.file.name,
        options=model.options,
        traced=ended.code == 0,
        seconds=round(seconds, 2),
        cpu_s=round(ended.cpu_s, 2),
        peak_memory_bytes=ended.peak_memory_bytes,
        parameters=profile.get("parameters"),
        flops_per_sample=profile.get("flops", [None, None])[1],
        notes=tuple(_named_anywhere(one, folder) for one in profile.get("notes", ())),
        message=None if ended.code == 0 else _message(printed, folder),
    )


@dataclass(frozen=True, kw_only=True)
class _Ended:
    """How a command ended; the memory is the largest resident set among its processes."""

    code: int
    cpu_s: float
    peak_memory_bytes: int


def _run(command: list[Any], errors: Any, limit_s: float) -> _Ended:
    """Run a command to its end, or until it has taken too long."""
    # Weights are never downloaded: a model that wants some fails at once.
    alone = {**os.environ, "HF_HUB_OFFLINE": "1", "GPUPLAN_HOME": os.path.dirname(errors.name)}
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors, env=alone
    )
    # gpuplan ends a trace at its own limit; this is for whatever hangs beside it.
    timer = threading.Timer(limit_s + 60, process.kill)
    timer.start()
    try:
        _, status, usage = os.wait4(process.pid, 0)
    finally:
        timer.cancel()
    process.returncode = os.waitstatus_to_exitcode(status)
    return _Ended(
        code=process.returncode,
        cpu_s=usage.ru_utime + usage.ru_stime,
        peak_memory_bytes=usage.ru_maxrss * (1 if MACS else KIB),
    )


def _message(printed: str, folder: Path) -> str:
    """Return what gpuplan said about a failure."""
    said = _named_anywhere(printed.split("Error:", 1)[-1], folder)
    return " ".join(said.split())[:SHOWN_CHARACTERS]


def _named_anywhere(text: str, folder: Path) -> str:
    """Return a text whose files are named without where this checkout is."""
    text = text.replace(f"{folder}{os.sep}", "").replace(f"{sys.prefix}{os.sep}", "")
    return re.sub(r"lib/python[\d.]+/site-packages/", "", text)
