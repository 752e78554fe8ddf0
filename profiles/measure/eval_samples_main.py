"""The child process that builds the data set of evaluations and tells its length.

Run as `python -m gpuplan.profiles.measure.eval_samples_main`; `child.Child` starts it.
"""

from __future__ import annotations

import json
import traceback
from dataclasses import asdict
from typing import IO, Any

from ..tracing_process.child_main import serve
from ..user_model import failures
from ..user_model.spec import ModelSpec
from .eval_samples import EvalSamples

FUNCTION = "build_eval_dataset"


def main() -> None:
    """Answer one request, then end with everything that the user's code started."""
    serve(answer)


def answer(request: dict[str, Any], _stream: IO[bytes]) -> bytes:
    """Return the count as JSON after a line that is the header, or the error in it."""
    spec = ModelSpec.from_json(request["spec"])
    try:
        return b"{}\n" + json.dumps(asdict(counted(spec))).encode()
    except BaseException as error:
        described = failures.describe_failure(error, spec.path)
        header = {"error": failures.to_json(described), "traceback": traceback.format_exc()}
        return json.dumps(header).encode() + b"\n"


def counted(spec: ModelSpec) -> EvalSamples:
    """Return how many samples the data set of evaluations has."""
    from ..user_model.checks import described
    from ..user_model.contract import load_workload
    from ..user_model.workload import bound_function

    build = bound_function(load_workload(spec), FUNCTION, reserved=0)
    if build is None:
        return EvalSamples(None, f"{spec.path.name} has no {FUNCTION}()")
    dataset = build()
    length = len(dataset) if hasattr(dataset, "__len__") else 0
    if length < 1:
        return EvalSamples(None, f"{FUNCTION}() returned {described(dataset)}, which has no length")
    return EvalSamples(length)


if __name__ == "__main__":
    main()
