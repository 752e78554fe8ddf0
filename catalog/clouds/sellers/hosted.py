"""Smaller sellers through gpuhunt: of the table that it hosts, or of their own lists. Read-only.

None of them needs an account, and none gets one.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from functools import cache
from importlib import import_module
from typing import Any

from ...embedded import embedded_catalogue
from ..asking import Patience, ask_everywhere, missing_library
from ..interface import (
    Answers,
    Asked,
    Availability,
    CloudError,
    PriceRow,
    Prices,
    Quota,
    Quotas,
    Refused,
    Reservations,
    Tell,
    Unanswered,
)
from .hosted_rows import read_hosted
from .marketplace_rows import read_marketplace

HOSTED = {
    "lambda": "lambdalabs",
    "nebius": "nebius",
    "oci": "oci",
    "runpod": "runpod",
    "verda": "verda",
}
"""Our name of a seller → gpuhunt's, of those whose rows it hosts."""
LIVE = {
    "vast-ai": ("vastai", "VastAIProvider"),
    "vultr": ("vultr", "VultrProvider"),
}
"""Our name → gpuhunt's module and class, of those whose public list it reads when it is asked."""
SELLERS = (*HOSTED, *LIVE)
MARKETPLACES = frozenset(("vast-ai",))
NO_ACCOUNT = "its quota and capacity are not asked for"
_LOADING = threading.Lock()


class HostedSeller:
    """One seller of gpuhunt's hosted catalogue.

    Args:
        name: Its name here.
        patience: Time-outs.
    """

    def __init__(self, name: str, *, patience: Patience | None = None) -> None:
        self.name = name
        self._patience = patience or Patience()
        self._gpuhunt = _library()

    def offers(self, asked: Asked, tell: Tell) -> Prices:
        """Return the prices that the hosted catalogue has of the seller."""
        answers, silent = ask_everywhere(
            (self.name,),
            lambda _name: self._listed() if self.name in LIVE else self._items(),
            question="prices",
            what=f"prices of {self.name}",
            patience=self._patience,
            tell=tell,
        )
        if silent:
            raise CloudError(silent[0].why)
        items, published = answers[self.name]
        found = Answers()
        found.add(self._read(items, asked, published, found.unmapped))
        found.answered |= {(region, "on-demand") for region in asked.regions}
        return found.prices()

    def _read(
        self, items: list[Any], asked: Asked, published: date | None, unmapped: set[str]
    ) -> Iterator[PriceRow | Refused]:
        memory = {one.name: one.memory_bytes for one in embedded_catalogue().accelerators.values()}
        today = asked.now.date()
        given = (items, self.name, asked.instances, memory)
        if self.name in MARKETPLACES:
            return read_marketplace(*given, regions=asked.regions, today=today, unmapped=unmapped)
        day = min(published or today, today)
        return read_hosted(*given, regions=asked.regions, published=day, unmapped=unmapped)

    def _listed(self) -> tuple[list[Any], date | None]:
        """Return the offers of the seller's own public list, which are of today."""
        module, name = LIVE[self.name]
        # Without a size, gpuhunt adds the rent of a whole disk to the price of each machine.
        wanted = self._gpuhunt.QueryFilter(min_disk_size=1, min_gpu_count=1)
        requests = import_module("requests.exceptions")
        try:
            reader = getattr(import_module(f"gpuhunt.providers.{module}"), name)()
            return list(reader.get(wanted)), None
        except requests.Timeout:
            raise CloudError("no answer in time") from None
        except (requests.RequestException, OSError):
            raise CloudError("its list of prices does not answer") from None
        except (KeyError, TypeError, ValueError, AttributeError):
            raise CloudError("the answer is cut off or damaged") from None

    def _items(self) -> tuple[list[Any], date | None]:
        """Return the seller's rows, and the day on which they were gathered."""
        seller = HOSTED[self.name]
        with _LOADING, _timeout(self._patience.answer_timeout_s):
            catalog = shared_catalogue()
            try:
                catalog.load()
            except (self._gpuhunt.GPUHuntError, OSError, ValueError):
                raise CloudError("gpuhunt's hosted catalogue does not answer") from None
            loaded = catalog.catalog.get(seller)
            if loaded is None:
                raise CloudError("gpuhunt's hosted catalogue does not answer for it")
            return catalog.query(provider=seller), _published(loaded.version)

    def availability(self, asked: Asked, tell: Tell) -> Availability:
        """Return that nothing is known."""
        return Availability(unanswered=(Unanswered(question="zones", why=NO_ACCOUNT),))

    def quota(self, asked: Asked, tell: Tell) -> Quotas:
        """Return that nothing is known."""
        return Quotas(unanswered=(Unanswered(question="quota", why=NO_ACCOUNT),))

    def reservations(self, asked: Asked, tell: Tell) -> Reservations:
        """Return that nothing is known."""
        return Reservations(unanswered=(Unanswered(question="held", why=NO_ACCOUNT),))

    def quota_command(self, quota: Quota, wanted: float) -> str:
        """Raise: there is no quota that could be asked for."""
        raise CloudError(NO_ACCOUNT)


def _library() -> Any:
    try:
        return import_module("gpuhunt")
    except ImportError:
        raise missing_library("gpuhunt", "sellers") from None


@cache
def shared_catalogue() -> Any:
    """Return one catalogue for all sellers: it reads a seller again only if there is news of it."""
    return _library().Catalog(auto_reload=False)


@contextmanager
def _timeout(timeout_s: float) -> Iterator[None]:
    """Hold requests to a time, for gpuhunt sets none."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(timeout_s)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def _published(version: str) -> date:
    """Return the day of a version ("20261124-38").

    Raises:
        CloudError: It names none, so that the prices have no date.
    """
    try:
        return datetime.strptime(version[:8], "%Y%m%d").replace(tzinfo=UTC).date()
    except ValueError:
        raise CloudError("gpuhunt's hosted catalogue has no date") from None
