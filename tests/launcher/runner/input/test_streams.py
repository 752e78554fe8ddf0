"""Every sample of a stream is trained on once, whoever deals it, and a run continues exactly."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from runner_jobs import REPOSITORY, plan_of, train
from torch.utils.data import IterableDataset, get_worker_info

from gpuplan.catalog.errors import UserFileError
from gpuplan.launcher.runner.input.batches import open_batches
from gpuplan.launcher.runner.input.samples import Share
from gpuplan.launcher.runner.job import CheckpointPolicy

CPU = torch.device("cpu")
ALONE = Share(rank=0, micro_batch=2, grad_accum=1, data=1)
STREAM = REPOSITORY / "tests" / "support" / "models" / "stream_model.py"


class Plain(IterableDataset[torch.Tensor]):
    """Gives all 64 numbers to whoever reads it."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter(torch.arange(64.0))


class Sharding(IterableDataset[torch.Tensor]):
    """Gives each worker a range of its own, as torch's documentation does."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        part = 64 // workers
        return iter(torch.arange(64.0)[worker * part : (worker + 1) * part])


class Shuffling(IterableDataset[torch.Tensor]):
    """Draws its order from Python's random numbers."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter(torch.tensor(random.sample([float(one) for one in range(64)], 64)))


class Stateful(IterableDataset[torch.Tensor]):
    """Says how far it is, and counts what is read of it in this process."""

    read = 0

    def __init__(self) -> None:
        self.place = 0

    def __iter__(self) -> Iterator[torch.Tensor]:
        while self.place < 64:
            type(self).read += 1
            self.place += 1
            yield torch.tensor(float(self.place - 1))
        self.place = 0

    def state_dict(self) -> dict[str, int]:
        return {"place": self.place}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.place = state["place"]


class StatefulSharding(Stateful):
    """The same, for every n-th number."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        return (one for one in super().__iter__() if one % workers == worker)


class Unsteady(IterableDataset[torch.Tensor]):
    """Gives other samples each time it is read."""

    times = 0

    def __iter__(self) -> Iterator[torch.Tensor]:
        type(self).times += 1
        return iter(torch.arange(64.0) + 100 * self.times)


def batches_of(
    stream: type, steps: int, *, share: Share = ALONE, start: int = 0, workers: int = 2, **more: Any
) -> tuple[list[list[float]], dict[int, bytes]]:
    """Return what each step reads, and how far the stream was read behind the last of them."""
    workload: Any = SimpleNamespace(build_dataset=stream)
    batches = open_batches(
        workload, share, CPU, seed=1, start=start, workers=workers, synthetic=False, **more
    )
    read: list[Any] = [batches.step() for _ in range(steps)]
    values = [sum((batch[0].tolist() for batch in step), []) for step in read]
    return values, batches.readings()


@pytest.mark.parametrize("stream", [Plain, Sharding, Shuffling, Stateful, StatefulSharding])
def test_workers_read_every_sample_once(stream: type) -> None:
    steps, _ = batches_of(stream, 32)

    assert sorted(sum(steps, [])) == [float(one) for one in range(64)]


@pytest.mark.parametrize("stream", [Plain, Sharding, Shuffling, Stateful, StatefulSharding])
@pytest.mark.parametrize(
    "start",
    [4, *(pytest.param(one, marks=[pytest.mark.slow, pytest.mark.repeats]) for one in (1, 33))],
)
def test_it_continues_exactly(stream: type, start: int) -> None:
    through, _ = batches_of(stream, start + 6)
    _, readings = batches_of(stream, start)
    continued, _ = batches_of(stream, 6, start=start, saved={0: readings} if readings else None)

    assert continued == through[start:]


def test_a_stream_that_knows_its_place_is_not_read_again() -> None:
    share = Share(rank=0, micro_batch=2, grad_accum=1, data=2)
    _, readings = batches_of(Stateful, 8, share=share, workers=0)
    Stateful.read = 0
    continued, _ = batches_of(Stateful, 1, start=8, workers=0, share=ALONE, saved={0: readings})
    again, _ = batches_of(Stateful, 1, start=16, workers=0, share=ALONE, saved={0: readings})

    assert continued == [[16.0, 17.0]], "its place was behind this step: read from the beginning"
    assert again == [[32.0, 33.0]]
    assert Stateful.read == 18 + 4, "two samples were skipped, and not 32 read again"


def test_a_stream_that_no_two_readers_see_alike_is_refused() -> None:
    with pytest.raises(UserFileError, match="other samples each time"):
        batches_of(Unsteady, 1)
    assert batches_of(Unsteady, 1, workers=1)[0], "one reader needs no dealing"


def test_a_stream_may_say_to_whom_it_deals_itself() -> None:
    class Said(Unsteady):
        deals_to: tuple[str, ...] = ("workers",)

    assert batches_of(Said, 1)[0]
    Said.deals_to = ("nodes",)
    with pytest.raises(UserFileError, match="deals_to"):
        batches_of(Said, 1)


def test_fewer_parts_than_workers_are_named() -> None:
    class OnePart(IterableDataset[torch.Tensor]):
        def __iter__(self) -> Iterator[torch.Tensor]:
            info = get_worker_info()
            return iter(()) if info and info.id else iter(torch.arange(64.0))

    with pytest.raises(UserFileError, match="fewer parts than readers"):
        batches_of(OnePart, 1)


def test_a_stream_without_a_sample_is_not_said_to_have_few_parts() -> None:
    class Empty(IterableDataset[torch.Tensor]):
        def __iter__(self) -> Iterator[torch.Tensor]:
            return iter(())

    with pytest.raises(UserFileError, match="a stream that has no sample"):
        batches_of(Empty, 1)


@pytest.mark.slow
@pytest.mark.parametrize("by", ["", "workers", "ranks+workers"])
def test_ranks_and_workers_train_on_every_sample_once(
    tmp_path: Path, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = tmp_path / "read"
    monkeypatch.setenv("SAMPLES_READ", str(read))
    plan = plan_of({"data": 2, "shard": 2, "zero_stage": 3}, micro_batch=4)
    train(tmp_path, STREAM, 2, plan=plan, steps=8, params={"by": by}, workers=2)

    assert sorted(map(float, read.read_text().split())) == [float(one) for one in range(64)]


@pytest.mark.slow
@pytest.mark.parametrize("by", ["", "ranks+workers"])
def test_a_checkpoint_knows_how_far_a_stream_was_read(
    tmp_path: Path, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = tmp_path / "read"
    monkeypatch.setenv("SAMPLES_READ", str(read))
    how: dict[str, Any] = {
        "plan": plan_of({"data": 2}, micro_batch=4),
        "params": {"by": by, "placed": True, "size": 1000},
        "workers": 2,
        "checkpoint": CheckpointPolicy(every_steps=1),
    }
    train(tmp_path, STREAM, 2, steps=7, **how)
    noted = tmp_path / "read-by-stream"
    noted.unlink()
    train(tmp_path, STREAM, 2, steps=8, **how)

    trained = list(map(float, read.read_text().split()))
    twice = {one for one in trained if trained.count(one) == 2}
    # DDP's first pass of an attempt finds unused parameters, on a batch that is then trained on.
    assert sorted(set(trained)) == [float(one) for one in range(64)]
    assert len(trained) == 64 + len(twice) and len(twice) <= 16
    after = set(map(float, noted.read_text().split()))
    # Up to 15 are read to find out whether the stream deals itself.
    assert 63 in after and not after & set(range(16, 32)), "it was read again from the beginning"
