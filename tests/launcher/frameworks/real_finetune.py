"""The fine-tunes of README.md and docs/running.md, as written there, up to `from_pretrained`.

`make test-frameworks` runs this; `make test` does not collect it (tests/examples/test_finetune.py
compares the losses of a shorter one).
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
BLOCK = re.compile(r"^```text\n(python examples/finetune_inputs.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", ["README.md", "docs/running.md"])
def test_the_commands_of_the_page_fine_tune_a_model(tmp_path: Path, page: str) -> None:
    block = BLOCK.search((ROOT / page).read_text(encoding="utf-8"))
    assert block is not None
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    for command in block[1].splitlines():
        done = subprocess.run(
            command,
            shell=True,
            cwd=tmp_path,
            env={**os.environ, "PATH": path, "GPUPLAN_HOME": str(tmp_path / "home")},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"

    lines = (tmp_path / "tuned" / "evaluations.jsonl").read_text().splitlines()
    first, last = (json.loads(line)["loss"] for line in (lines[0], lines[-1]))
    assert last < first
    assert {"config.json", "tokenizer.json", "model.safetensors"} <= {
        path.name for path in (tmp_path / "tuned-llama").iterdir()
    }
