"""A model file that reads the command line sees no words of gpuplan's, as where it is traced."""

from __future__ import annotations

import json
from pathlib import Path

from runner_jobs import make_job, plan_of, run_with_torchrun

MODEL = """
import argparse
import json
import sys
from pathlib import Path

import torch

parser = argparse.ArgumentParser()
parser.add_argument("data", nargs="?", default="data")
parser.add_argument("--hidden", type=int, default=4)
args = parser.parse_args()
Path(__file__).with_name("seen.json").write_text(json.dumps([sys.argv, args.data]))


def build_model():
    return torch.nn.Linear(2, args.hidden)


def make_batch(batch_size=2):
    return torch.ones(batch_size, 2)


def compute_loss(model, batch):
    return model(batch).mean()
"""


def test_it_takes_its_defaults(tmp_path: Path) -> None:
    path = tmp_path / "net.py"
    path.write_text(MODEL)

    done = run_with_torchrun(make_job(tmp_path / "run", path, plan=plan_of(), steps=1))

    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "seen.json").read_text()) == [[str(path)], "data"]
