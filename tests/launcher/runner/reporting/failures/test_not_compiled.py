"""What torch's compiler cannot do is not told as a fault of the model."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from runner_jobs import REPOSITORY, make_job, plan_of, run_with_torchrun

from gpuplan.launcher.runner.job import read_job
from gpuplan.launcher.runner.reporting.failures.not_compiled import LONGEST, not_compiled

pytestmark = [pytest.mark.slow, pytest.mark.spread]

MODEL = REPOSITORY / "tests" / "support" / "models" / "failing_model.py"


def test_a_machine_without_a_compiler_is_said_to_lack_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAILING", "")
    monkeypatch.setenv("CXX", str(tmp_path / "no-compiler"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    folder = make_job(tmp_path, MODEL, plan=plan_of(compile=True, stack="torch-compile"))
    done = run_with_torchrun(folder)

    failure = json.loads((tmp_path / "failure.json").read_text())
    assert (done.returncode, failure["class"]) == (1, "NotCompiledError")
    assert "torch.compile could not compile failing_model.py" in failure["message"]
    assert "compiler" in failure["message"].partition(": ")[2]
    assert "gpuplan estimate --no-compile" in failure["fix"] and "g++" in failure["fix"]
    assert "Traceback" not in done.stderr
    assert "no-compiler" in (tmp_path / "traceback.txt").read_text()


def test_only_the_compiler_s_own_errors_are_told_so_and_in_short(tmp_path: Path) -> None:
    from torch._dynamo.exc import TorchRuntimeError
    from torch._inductor.exc import CppCompileError

    job = read_job(make_job(tmp_path, MODEL, plan=plan_of(compile=True)))
    assert not_compiled(job, ValueError("a fault of the model")) is None
    assert not_compiled(job, TorchRuntimeError("mat1 and mat2 shapes cannot be multiplied")) is None
    found = not_compiled(job, CppCompileError(["g++", "x" * 5000], "an error"))
    assert found is not None and len(str(found).splitlines()[0]) < LONGEST + 120
    own = not_compiled(replace(job, execution=None), CppCompileError(["g++"], "an error"))
    assert own is not None and "leave torch.compile out of the file" in str(own)
