"""Azure's client libraries at the edge: how they are loaded, and one meaning for each error."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from ..asking import Patience, missing_library
from ..interface import CloudError

VARIABLES_FIX = "see AZURE_TENANT_ID, AZURE_CLIENT_ID, AZURE_CLIENT_SECRET, or run `az login`."
NOT_OPEN = frozenset(
    ("LocationNotAvailableForResourceType", "LocationNotAvailable", "NoRegisteredProviderFound")
)
"""Codes for a region that a subscription may not use:
https://learn.microsoft.com/azure/azure-resource-manager/troubleshooting/common-deployment-errors."""
LOGIN_FIX = "log in again (`az login`), then repeat the command."


def library(name: str) -> Any:
    """Return a module of Azure's libraries; raise CloudError where it is not installed."""
    try:
        return import_module(name)
    except ImportError:
        raise missing_library(name, "azure") from None


def default_credential() -> Any:
    """Return the user's own login; raise CloudError where what is set up for it is no login."""
    identity = library("azure.identity")
    try:
        return identity.DefaultAzureCredential()
    except (OSError, TypeError, ValueError):
        # Its message may quote what was set, which may be a secret in the wrong place.
        raise CloudError("the Azure credentials cannot be read", fix=VARIABLES_FIX) from None


def limits(patience: Patience) -> dict[str, Any]:
    """Return the options that hold one request to its time; gpuplan itself asks again."""
    return {
        "retry_total": 0,
        "connection_timeout": patience.connect_timeout_s,
        "read_timeout": patience.answer_timeout_s,
    }


def _code(error: Any) -> str:
    return str(getattr(getattr(error, "error", None), "code", None))


@contextmanager
def meaning(permission: str) -> Iterator[None]:
    """Raise what Azure's libraries raise in the block as a CloudError, without its message."""
    errors = import_module("azure.core.exceptions")
    try:
        yield
    except errors.ClientAuthenticationError as error:
        if getattr(error, "status_code", None) == 401:
            raise CloudError("the Azure login has expired", fix=LOGIN_FIX) from None
        # Found out with the first request of each region, whose line is all that is read of it.
        raise CloudError("no Azure credentials (`az login` makes them)") from None
    except (errors.ServiceRequestTimeoutError, errors.ServiceResponseTimeoutError):
        raise CloudError("no answer in time", temporary=True) from None
    except (errors.DecodeError, errors.IncompleteReadError, json.JSONDecodeError):
        raise CloudError("the answer is cut off or damaged", temporary=True) from None
    except errors.HttpResponseError as error:
        status = error.status_code
        if _code(error) in NOT_OPEN:
            raise CloudError("the region is not open to this subscription", skipped=True) from None
        if status == 403:
            raise CloudError("not permitted", permission=permission) from None
        if status is None or status == 429 or status >= 500:
            raise CloudError("Azure is too busy", temporary=True) from None
        raise CloudError(f"Azure answers HTTP {status}") from None
    except errors.AzureError:
        raise CloudError("no connection", temporary=True) from None
