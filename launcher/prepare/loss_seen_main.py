"""The child process that looks at the loss of a file as the runner does before its first step.

Run as `python -m gpuplan.launcher.prepare.loss_seen_main`; `child.Child` starts it.
"""

from __future__ import annotations

import json
import traceback
from typing import IO, Any

from ...profiles.tracing_process.child_main import serve
from ...profiles.user_model import failures
from ...profiles.user_model.spec import ModelSpec


def main() -> None:
    """Answer one request, then end with everything that the user's code started."""
    serve(answer)


def answer(request: dict[str, Any], _stream: IO[bytes]) -> bytes:
    """Return a line of JSON: what is to be said of the loss, or the error in it."""
    spec = ModelSpec.from_json(request["spec"])
    try:
        return json.dumps({"words": _words(spec, request["plan"])}).encode()
    except BaseException as error:
        described = failures.describe_failure(error, spec.path, spec.params)
        header = {"error": failures.to_json(described), "traceback": traceback.format_exc()}
        return json.dumps(header).encode() + b"\n"


def _words(spec: ModelSpec, plan: dict[str, Any]) -> list[str]:
    from ...profiles.user_model.contract import load_workload
    from ..runner.input.compared_samples import warnings_here
    from ..runner.job import execution_of

    return list(warnings_here(load_workload(spec), execution_of(plan)))


if __name__ == "__main__":
    main()
