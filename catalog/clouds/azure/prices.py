"""Azure's public price list over HTTP, which needs no account and no client library."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any

from ..asking import Patience, asked_again
from ..interface import CloudError

PRICES_URL = "https://prices.azure.com/api/retail/prices"
"""https://learn.microsoft.com/rest/api/cost-management/retail-prices/azure-retail-prices
(2026-11-23)."""
VERSION = "2023-01-01-preview"
"""Rates of savings plans are in the rows of this version and of no older one; same address."""
LARGEST_ANSWER_BYTES = 32 * 2**20
"""A page holds at most 1,000 rows of under 1 kB; what is larger is no page."""
MOST_PAGES = 500


class AzurePrices:
    """The price list.

    Args:
        url: Where it is, in place of Azure's own.
        patience: Time-outs and tries.
    """

    def __init__(self, url: str = PRICES_URL, patience: Patience | None = None) -> None:
        self._url = url
        self._patience = patience or Patience()

    def of(self, instance_type: str) -> list[Mapping[str, Any]]:
        """Return every row of one instance type, of all regions and ways of buying."""
        chosen = f"serviceName eq 'Virtual Machines' and armSkuName eq '{instance_type}'"
        given = {"api-version": VERSION, "currencyCode": "'USD'", "$filter": chosen}
        query = urllib.parse.urlencode(given)
        return [row for page in self._pages(f"{self._url}?{query}") for row in page]

    def _pages(self, first: str) -> Iterator[list[Mapping[str, Any]]]:
        following: str | None = first
        seen: set[str] = set()
        while following:
            if following in seen or len(seen) >= MOST_PAGES:
                raise CloudError("the answer repeats the same page")
            if _origin(following) != _origin(self._url):
                raise CloudError("the answer goes on at another address")
            seen.add(following)
            page = self._page(following)
            yield page["Items"]
            following = page.get("NextPageLink")

    def _page(self, url: str) -> dict[str, Any]:
        def ask() -> dict[str, Any]:
            page = _answer(url, self._patience.answer_timeout_s)
            if not isinstance(page, dict) or not isinstance(page.get("Items"), list):
                raise CloudError("the answer is cut off or damaged", temporary=True)
            return page

        return asked_again(ask, self._patience)


def _answer(url: str, timeout_s: float) -> Any:
    request = urllib.request.Request(url, headers={"Accept": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as answer:
            content = answer.read(LARGEST_ANSWER_BYTES + 1)
        if len(content) > LARGEST_ANSWER_BYTES:
            raise CloudError("the answer is too large")
        return json.loads(content)
    except urllib.error.HTTPError as error:
        if error.code == 429 or error.code >= 500:
            raise CloudError("Azure is too busy", temporary=True) from None
        raise CloudError(f"Azure answers HTTP {error.code}") from None
    except TimeoutError:
        raise CloudError("no answer in time", temporary=True) from None
    except ValueError:
        raise CloudError("the answer is cut off or damaged", temporary=True) from None
    except (OSError, http.client.HTTPException) as error:
        timed_out = isinstance(getattr(error, "reason", None), TimeoutError)
        why = "no answer in time" if timed_out else "no connection"
        raise CloudError(why, temporary=True) from None


def _origin(url: str) -> tuple[str, str]:
    parts = urllib.parse.urlsplit(url)
    return parts.scheme, parts.netloc
