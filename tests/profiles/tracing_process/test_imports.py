"""What a model file imports while its model is built, in a process that has imported nothing."""

from pathlib import Path
from textwrap import dedent

import pytest

from gpuplan.catalog.errors import UserFileError
from gpuplan.profiles.tracing_process.service import make_profile
from gpuplan.profiles.user_model.spec import parse_model_spec

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("own_trace_processes")]

MODEL = """
    import torch
    from torch import nn
    from torch.utils.checkpoint import checkpoint

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(8, 3)

        def forward(self, x):
            {in_forward}
            return checkpoint(self.layer, x, use_reentrant=False).mean()

    def build_model():
        {in_build}
        return Model()

    def make_batch(batch_size: int = 4):
        return (torch.randn(batch_size, 8),)
"""
LIBRARY = """
    import sys
    {line}
    import torch
    import torch._dynamo
    import torch._dynamo.utils
    assert sys.modules["torch._dynamo"] is torch._dynamo
    assert torch._dynamo.utils is sys.modules["torch._dynamo.utils"]
    assert torch._dynamo.utils.__spec__.name == "torch._dynamo.utils"
    assert torch._dynamo.utils.counters is not None
"""
LINES = {
    "a module of it": "import torch._dynamo.utils",
    "a module of a module": "import torch._dynamo.variables.builder",
    "an attribute": "import torch; torch._dynamo.allow_in_graph",
}
REPEATED = {"a module of it", "a module of a module"}


def file_of(folder: Path, *, in_build: str = "", in_forward: str = "") -> Path:
    file = folder / "model.py"
    text = MODEL.format(in_build=in_build or "pass", in_forward=in_forward or "pass")
    file.write_text(dedent(text))
    return file


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(line, id=name, marks=pytest.mark.repeats if name in REPEATED else ())
        for name, line in LINES.items()
    ],
)
def test_a_library_that_imports_the_compiler_may_be_imported_in_build_model(
    tmp_path: Path, line: str
) -> None:
    (tmp_path / "vision.py").write_text(dedent(LIBRARY).format(line=line))
    plain = make_profile(parse_model_spec(str(file_of(tmp_path))), numerics=["fp32"])
    file = file_of(tmp_path, in_build="import vision")
    built = make_profile(parse_model_spec(str(file)), numerics=["fp32"])
    assert (built.steps, built.flops) == (plain.steps, plain.flops)


def test_a_library_that_imports_the_compiler_may_be_imported_in_forward(tmp_path: Path) -> None:
    (tmp_path / "vision.py").write_text(dedent(LIBRARY).format(line=LINES["a module of it"]))
    plain = make_profile(parse_model_spec(str(file_of(tmp_path))), numerics=["fp32"])
    file = file_of(tmp_path, in_forward="import vision")
    run = make_profile(parse_model_spec(str(file)), numerics=["fp32"])
    assert (run.steps, run.flops) == (plain.steps, plain.flops)


def test_a_module_that_an_installed_package_lacks_is_not_said_to_be_the_package(
    tmp_path: Path,
) -> None:
    file = file_of(tmp_path, in_build="import torch._dynamo.no_such_part")
    with pytest.raises(UserFileError) as error:
        make_profile(parse_model_spec(str(file)), numerics=["fp32"])
    assert "the installed torch has no module torch._dynamo.no_such_part" in error.value.message
    assert "model.py:16, in build_model" in error.value.message
    assert "pip install torch " not in (error.value.fix or "")
