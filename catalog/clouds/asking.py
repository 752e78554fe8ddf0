"""How a cloud is asked: again where that may help, in many regions at once, never for ever."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from .interface import CloudError, Question, Tell, Unanswered

T = TypeVar("T")

ANSWER_TIMEOUT_S = 20.0
"""One request gets this long for its answer, and a quarter of it for the connection."""
CONNECT_TIMEOUT_S = ANSWER_TIMEOUT_S / 4
TRIES = 4
"""So often the same request is made where the answer was a throttle, an outage or a cut."""
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 8.0
WORKERS = 16
"""Regions asked at the same time: of 31 regions none waits for more than one other."""
REGIONS_TIMEOUT_S = 60.0
"""All regions of one provider together; those that have not answered then are named."""


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long and how often a cloud is asked; tests take less of it."""

    tries: int = TRIES
    first_pause_s: float = FIRST_PAUSE_S
    answer_timeout_s: float = ANSWER_TIMEOUT_S
    connect_timeout_s: float = CONNECT_TIMEOUT_S
    regions_timeout_s: float = REGIONS_TIMEOUT_S
    workers: int = WORKERS


def asked_again(ask: Callable[[], T], patience: Patience) -> T:
    """Return what a request answers, made again with growing pauses after a temporary failure.

    Raises:
        CloudError: It failed for good, or as often as it is tried.
    """
    tenacity = _tenacity()
    attempts = tenacity.Retrying(
        retry=tenacity.retry_if_exception(_is_temporary),
        # An answer that took all its time is not waited for as often again.
        stop=tenacity.stop_after_attempt(patience.tries)
        | tenacity.stop_after_delay(patience.answer_timeout_s),
        wait=tenacity.wait_random_exponential(
            multiplier=patience.first_pause_s, max=LONGEST_PAUSE_S
        ),
        reraise=True,
    )
    result: T = attempts(ask)
    return result


def ask_everywhere(
    places: Iterable[str],
    ask: Callable[[str], T],
    *,
    question: Question,
    what: str,
    patience: Patience,
    tell: Tell,
) -> tuple[dict[str, T], list[Unanswered]]:
    """Return what each place answered, and the places that did not, each with its reason.

    Args:
        places: Regions, or whatever the requests are made for.
        ask: Makes the requests of one place; raises CloudError.
        question: What is asked, for the places that do not answer.
        what: What a progress bar says is done.
        patience: How long all of them get.
        tell: Called as they answer.
    """
    names = tuple(dict.fromkeys(places))
    asked = begun([partial(ask, name) for name in names], workers=patience.workers)
    running = dict(zip(asked, names, strict=True))
    done_count = 0

    def count(_future: Future[T]) -> None:
        nonlocal done_count
        done_count += 1
        tell(what, done_count, len(names))

    for future in running:
        future.add_done_callback(count)
    done, late = wait(running, timeout=patience.regions_timeout_s)
    # A thread that hangs ends with the timeout of its own socket; nobody waits for it.
    for future in late:
        future.cancel()
    answers: dict[str, T] = {}
    unanswered: list[Unanswered] = []
    for future in done:
        error = future.exception()
        if error is None:
            answers[running[future]] = future.result()
        elif isinstance(error, CloudError):
            unanswered.append(unanswered_by(error, question, running[future]))
        else:
            raise error
    limit = f"no answer within {patience.regions_timeout_s:g} s"
    unanswered += [
        Unanswered(question=question, region=running[future], why=limit) for future in late
    ]
    order = {name: place for place, name in enumerate(names)}
    unanswered.sort(key=lambda one: order.get(one.region or "", -1))
    return {name: answers[name] for name in names if name in answers}, unanswered


def begun(calls: Iterable[Callable[[], T]], *, workers: int) -> list[Future[T]]:
    """Return the futures of calls that other threads make, so many at the same time.

    Ending the process waits for none of them, however it ends: `ThreadPoolExecutor` joins its
    threads, so that Ctrl-C would wait for the slowest socket.
    """
    waiting: SimpleQueue[tuple[Future[T], Callable[[], T]]] = SimpleQueue()
    futures: list[Future[T]] = []
    for call in calls:
        futures.append(Future())
        waiting.put((futures[-1], call))
    for _ in range(min(workers, len(futures))):
        threading.Thread(target=_work, args=(waiting,), daemon=True).start()
    return futures


def _work(waiting: SimpleQueue[tuple[Future[T], Callable[[], T]]]) -> None:
    while True:
        try:
            future, call = waiting.get_nowait()
        except Empty:
            return
        if not future.set_running_or_notify_cancel():
            continue
        try:
            result = call()
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)


def one_at_a_time(tell: Tell) -> Tell:
    """Return the same callback for many threads: a progress bar takes one call at a time."""
    lock = threading.Lock()

    def locked(what: str, done: int | None, total: int | None) -> None:
        with lock:
            tell(what, done, total)

    return locked


def unanswered_by(error: CloudError, question: Question, region: str | None = None) -> Unanswered:
    """Return what a refusal leaves unknown."""
    return Unanswered(
        question=question,
        region=region,
        why=error.why,
        permission=error.permission,
        skipped=error.skipped,
    )


def undocumented_quotas(names: Mapping[str, object], purchase: str) -> list[Unanswered]:
    """Return what is not known of the instance types of which no page says which quota counts them.

    Args:
        names: The quota of each type; None where none is documented.
        purchase: On demand or spot.
    """
    return [
        Unanswered(
            question="quota",
            instance_type=name,
            why=f"which {purchase} quota counts {name} is not documented",
        )
        for name, quota in names.items()
        if quota is None
    ]


def _is_temporary(error: BaseException) -> bool:
    return isinstance(error, CloudError) and error.temporary


def _tenacity() -> Any:
    try:
        return import_module("tenacity")
    except ImportError:
        raise CloudError("tenacity is not installed (pip install tenacity)") from None


def missing_library(name: str, extra: str) -> CloudError:
    """Return the error for a client library that is not installed."""
    return CloudError(f"{name} is not installed", fix=f'pip install "gpuplan[{extra}]"')
