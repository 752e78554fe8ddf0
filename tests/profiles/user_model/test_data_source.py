"""What a file would be trained on, as its text tells, and as it is when it is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuplan.profiles.user_model.data_source import data_source
from gpuplan.profiles.user_model.spec import parse_model_spec

MODEL = "def build_model(): ...\ndef make_batch(batch_size): ...\n"
LIGHTNING = """
import lightning
class Base(lightning.LightningModule):
    pass
class Net(Base):
    def train_dataloader(self): ...
"""


@pytest.mark.parametrize(
    ("text", "kind", "why"),
    [
        (MODEL, "synthetic", "net.py has no build_dataset()"),
        (MODEL + "def build_dataset(): ...\n", "dataset", "build_dataset() of net.py"),
        (MODEL + "from data import build_dataset\n", "dataset", ""),
        (MODEL + "from data import images as build_dataset\n", "dataset", ""),
        (MODEL + "from own import *\n", "dataset", ""),
        (MODEL + "from numpy import *\n", "unknown", "not seen in its text"),
        (MODEL + "build_dataset = dict\n", "dataset", ""),
        (MODEL + "try:\n    import x\nexcept ImportError:\n    build_dataset = 1\n", "dataset", ""),
        (MODEL + "def f():\n    def build_dataset(): ...\n", "synthetic", ""),
        ("def deepview_model_provider(): ...\n", "synthetic", "no build_dataset()"),
        (LIGHTNING, "loader", "train_dataloader()"),
        (LIGHTNING + "def make_batch(batch_size): ...\n", "synthetic", "no build_dataset()"),
        (LIGHTNING + MODEL + "def build_dataset(): ...\n", "dataset", ""),
        ("from lightning import *\nclass Net(LightningModule): ...\n", "unknown", ""),
    ],
)
def test_the_text_of_a_file_tells(tmp_path: Path, text: str, kind: str, why: str) -> None:
    (tmp_path / "own.py").write_text("from deeper import *\n")
    (tmp_path / "deeper.py").write_text("from own import *\ndef build_dataset(): ...\n")
    (tmp_path / "net.py").write_text(text)
    found = data_source(parse_model_spec(str(tmp_path / "net.py")))

    assert found.kind == kind
    assert why in found.why


def test_a_class_and_a_config_have_no_data_set(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(MODEL + "class Net: ...\ndef build_dataset(): ...\n")
    (tmp_path / "config.json").write_text("{}")
    named = parse_model_spec(f"{tmp_path}/net.py:Net", inputs=["3"])

    assert data_source(named).kind == "synthetic"
    assert data_source(parse_model_spec(f"hf:{tmp_path}")).kind == "synthetic"
