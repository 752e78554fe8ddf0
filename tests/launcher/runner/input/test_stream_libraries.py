"""Streams of data libraries: every sample once, dealt by whom it may be, and continued."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from runner_jobs import plan_of, train

from gpuplan.launcher.runner.job import CheckpointPolicy

pytestmark = pytest.mark.slow

PARTS, EACH = 8, 8
MODEL = """
import os
from pathlib import Path

import torch

HERE = Path(__file__).parent


def build_model():
    return torch.nn.Linear(1, 1)


def make_batch(batch_size=2):
    return {"x": -torch.ones(batch_size, 1)}


def compute_loss(model, batch):
    with open(HERE / f"seen-{os.environ['RANK']}", "a") as file:
        file.writelines(f"{int(one)}\\n" for one in batch["x"].flatten())
    return model(batch["x"]).square().mean()


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 1000

    def __getitem__(self, place):
        with open(HERE / f"read-{os.environ['RANK']}", "a") as file:
            file.write(f"{place}\\n")
        return {"x": torch.tensor([float(place)])}


class Loaded(torch.utils.data.IterableDataset):
    # What torchdata's loader reads, shuffled, which says itself how far it is.

    def __init__(self):
        from torchdata.stateful_dataloader import StatefulDataLoader

        order = torch.Generator().manual_seed(3)
        self.loader = StatefulDataLoader(Numbers(), None, shuffle=True, generator=order)

    def __iter__(self):
        return iter(self.loader)

    def state_dict(self):
        return self.loader.state_dict()

    def load_state_dict(self, state):
        self.loader.load_state_dict(state)


def build_dataset(kind):
    if kind == "torchdata":
        return Loaded()
    if kind.startswith("webdataset"):
        import webdataset

        split = webdataset.split_by_node if kind.endswith("split") else lambda urls: urls
        parts = [str(one) for one in sorted(HERE.glob("*.tar"))]
        found = webdataset.WebDataset(parts, shardshuffle=False, nodesplitter=split)
        return found.map(lambda one: {"x": torch.tensor([float(one["txt"])])})
    import datasets
    from datasets.distributed import split_dataset_by_node

    parts = [str(one) for one in sorted(HERE.glob("*.jsonl"))]
    found = datasets.load_dataset("json", data_files=parts, split="train", streaming=True)
    if kind.endswith("split"):
        place = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        found = split_dataset_by_node(found, *place)
    return found.with_format("torch")
"""


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a model file beside its data in parts, of both libraries."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    for part in range(PARTS):
        values = range(part * EACH, (part + 1) * EACH)
        with tarfile.open(tmp_path / f"{part}.tar", "w") as file:
            for value in values:
                text = str(value).encode()
                info = tarfile.TarInfo(f"{value:04d}.txt")
                info.size = len(text)
                file.addfile(info, io.BytesIO(text))
        lines = [json.dumps({"x": [float(value)]}) + "\n" for value in values]
        (tmp_path / f"{part}.jsonl").write_text("".join(lines))
    path = tmp_path / "net.py"
    path.write_text(MODEL)
    return path


@pytest.mark.parametrize(
    "kind", ["webdataset", "webdataset split", "huggingface", "huggingface split"]
)
def test_two_ranks_of_two_workers_see_every_sample_once(
    tmp_path: Path, model: Path, kind: str, require: Any
) -> None:
    library = "webdataset" if kind.startswith("webdataset") else "datasets"
    require(library, f"pip install {library}")
    train(
        tmp_path / "run",
        model,
        2,
        plan=plan_of({"data": 2}, micro_batch=2),
        params={"kind": kind},
        steps=PARTS * EACH // 4,
        workers=2,
    )
    seen = {int(one) for file in tmp_path.glob("seen-*") for one in file.read_text().split()}
    # As many samples were asked for as there are: with one twice, another would be missing.
    assert seen - {-1} == set(range(PARTS * EACH))


def test_torchdatas_loader_goes_on_where_it_was(tmp_path: Path, model: Path, require: Any) -> None:
    require("torchdata", "pip install torchdata")

    def losses(folder: str, steps: int) -> list[float]:
        return train(
            tmp_path / folder,
            model,
            2,
            plan=plan_of({"data": 2}, micro_batch=2),
            params={"kind": "torchdata"},
            steps=steps,
            workers=2,
            checkpoint=CheckpointPolicy(every_steps=1),
        )

    straight = losses("straight", 60)
    assert len(set(straight)) == 60, "some samples came twice"
    losses("parts", 50)
    read = [tmp_path / f"read-{rank}" for rank in range(2)]
    for one in read:
        one.unlink()
    assert losses("parts", 60) == pytest.approx(straight, rel=1e-6)
    # 200 samples were trained on before. Each of the workers reads 60 and some ahead, and first of
    # all the beginning is read, to find out whether the stream deals itself.
    assert all(len(one.read_text().split()) < 200 for one in read), "it was read again"
