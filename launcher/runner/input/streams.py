"""A stream of the user's, dealt to ranks and workers, and continued where a run was stopped."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch.utils.data import IterableDataset, default_collate, get_worker_info

from .dealing import Dealing
from .samples import EPOCH, Share, mixed_seed, seed_everything, tell

Reading = dict[str, Any]
"""How far one reader of a stream is: `samples` of the stream, `passes`, `place` within the pass,
and the stream's own `state`."""


def keeps_place(dataset: Any) -> bool:
    """Return whether a stream says how far it is, and can go on from there."""
    return callable(getattr(dataset, "state_dict", None)) and callable(
        getattr(dataset, "load_state_dict", None)
    )


@dataclass(frozen=True, kw_only=True)
class Turns:
    """Which of a stream's micro-batches one reader takes."""

    ranks: int
    rank: int
    workers: int
    worker: int
    first: int
    """The rank's micro-batch, over the whole run, that the loader gives first."""
    dealing: Dealing

    @classmethod
    def of(cls, share: Share, dealing: Dealing, start: int) -> Turns:
        """Return those of the worker that this is."""
        info = get_worker_info()
        workers, worker = (info.num_workers, info.id) if info else (1, 0)
        return cls(
            ranks=1 if dealing.over_ranks else share.data,
            rank=0 if dealing.over_ranks else share.rank,
            workers=workers,
            worker=worker,
            first=start * share.grad_accum,
            dealing=dealing,
        )

    def takes(self, number: int) -> bool:
        """Return whether a micro-batch, counted in what this reader is given, is for it."""
        if number % self.ranks != self.rank:
            return False
        turn = number // self.ranks
        if self.dealing.over_workers:
            return turn >= self.first // self.workers
        # Loaders take their workers' batches in turn.
        return turn >= self.first and (turn - self.first) % self.workers == self.worker

    @property
    def is_ahead(self) -> bool:
        """Return whether this worker gave one micro-batch more than the last workers did."""
        return self.dealing.over_workers and self.worker < self.first % self.workers


class Dealt(IterableDataset[Any]):
    """A stream dealt out: every rank and every worker takes its own micro-batches of it.

    What the stream deals by itself is not dealt again. Its random numbers are the same for every
    reader and after a run continues. Without a `state_dict` of its own a stream cannot be entered
    in the middle: what was trained on already is read again and dropped. When it ends it begins
    anew, and only one that gives nothing then has ended.
    """

    def __init__(
        self,
        dataset: Any,
        share: Share,
        start: int,
        *,
        dealing: Dealing | None = None,
        seed: int = 0,
        workers: int = 1,
        readings: Mapping[int, Reading] | None = None,
    ) -> None:
        """Deal a stream.

        Args:
            dataset: the stream.
            share: of this rank.
            start: the first step.
            dealing: what the stream deals by itself.
            seed: of its random numbers.
            workers: that read for each rank; 1 too where the process itself reads.
            readings: by worker, how far the stream was read before the first step.
        """
        self.of_user = dataset
        self._share = share
        self._start = start
        self._dealing = dealing or Dealing()
        self._seed = seed
        self._workers = workers
        self._readings = readings or {}
        self.reading: Reading = {}
        """How far this reader is, behind the sample that it gave last."""

    @property
    def dropped(self) -> int:
        """Return how many micro-batches of the loader come before the first step."""
        if not self._dealing.over_workers:
            return 0
        return self._start * self._share.grad_accum % self._workers

    def __iter__(self) -> Iterator[Any]:
        """Yield this reader's samples without end."""
        share, turns = self._share, Turns.of(self._share, self._dealing, self._start)
        found = self._readings.get(turns.worker)
        samples = found["samples"] if found else 0
        if found and turns.is_ahead:
            # The loader begins with the first worker again; this repetition of it is dropped.
            yield from self._repeated(found)
        for sample in self._all(found):
            number, samples = samples // share.micro_batch, samples + 1
            self.reading["samples"] = samples
            if turns.takes(number):
                yield sample

    def _repeated(self, found: Reading) -> Iterator[Any]:
        first = next(self._all(found), None)
        if first is not None:
            yield from [first] * self._share.micro_batch

    def _all(self, found: Reading | None) -> Iterator[Any]:
        """Yield every sample that the stream gives this reader, pass after pass."""
        passes, place = (found["passes"], found["place"]) if found else (0, 0)
        tell(self.of_user, EPOCH, passes, self._seed)
        if found:
            self.of_user.load_state_dict(found["state"])
        while True:
            seed_everything(self._seed_of(passes, place))
            before, samples = place, iter(self.of_user)
            while True:
                seed_everything(self._seed_of(passes, place))
                try:
                    sample = next(samples)
                except StopIteration:
                    break
                place += 1
                self.reading |= {"passes": passes, "place": place}
                yield sample
            if place == before == 0:
                return
            passes, place = passes + 1, 0
            tell(self.of_user, EPOCH, passes, self._seed)

    def _seed_of(self, passes: int, place: int) -> int:
        """Return a seed, the same for all readers where a pass begins: there they shuffle."""
        info = get_worker_info()
        worker = info.id if info and self._dealing.over_workers and place else 0
        rank = self._share.rank if self._dealing.over_ranks and place else 0
        return mixed_seed(self._seed, passes, place, rank, worker)


class Told(NamedTuple):
    """What a worker tells of a stream, beside a batch of it."""

    worker: int
    passes: int
    """How often it has read the stream to its end."""
    reading: bytes | None
    """How far it is; None where the stream cannot go on from there."""


@dataclass(frozen=True)
class WithReading:
    """Puts samples together, and says behind them how far the stream was read; in the worker."""

    dealt: Dealt
    collate: Callable[[list[Any]], Any] | None

    def __call__(self, samples: list[Any]) -> tuple[Any, Told]:
        """Return (the batch, how far it was read)."""
        info = get_worker_info()
        reading = self._reading() if keeps_place(self.dealt.of_user) else None
        batch = (self.collate or default_collate)(samples)
        passes = self.dealt.reading.get("passes", 0)
        return batch, Told(info.id if info else 0, passes, reading)

    def _reading(self) -> bytes:
        kept = io.BytesIO()
        torch.save({**self.dealt.reading, "state": self.dealt.of_user.state_dict()}, kept)
        return kept.getvalue()


def continued(
    saved: Mapping[int, Mapping[int, bytes]],
    share: Share,
    start: int,
    dealing: Dealing,
    workers: int,
) -> dict[int, Reading]:
    """Return, by worker, where to go on reading; {} where the stream is read from its beginning.

    A stream that all read whole is entered at the last place that is before this step's samples,
    by whomever it was kept. One that deals itself goes on only with as many readers as before.

    Args:
        saved: by data rank and worker, as `WithReading` told it.
        share: of this rank.
        start: the first step.
        dealing: what the stream deals by itself.
        workers: that read for each rank.
    """
    everyone = [_read(one) for by_worker in saved.values() for one in by_worker.values()]
    if not everyone or any(one is None for one in everyone):
        return {}
    if dealing.over_workers or dealing.over_ranks:
        own = {worker: _read(one) for worker, one in saved.get(share.rank, {}).items()}
        same = len(saved) == share.data and len(own) == workers
        return {worker: one for worker, one in own.items() if one} if same else {}
    reached = [one for one in everyone if one and one["samples"] <= start * share.global_batch]
    if not reached:
        return {}
    last = max(reached, key=lambda one: one["samples"])
    return dict.fromkeys(range(workers), last)


def _read(content: bytes) -> Reading | None:
    """Return a reading that a worker told, nothing of which is run; None if it cannot be read."""
    try:
        return torch.load(io.BytesIO(content), weights_only=True)
    except (RuntimeError, ValueError, EOFError, pickle.UnpicklingError):
        return None
