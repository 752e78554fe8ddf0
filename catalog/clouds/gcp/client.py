"""Google's client libraries at the edge: clients over REST, one meaning for each error."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any, TypeVar

from ..asking import Patience, asked_again, missing_library
from ..interface import CloudError
from .services import client_class

T = TypeVar("T")

PROJECT_VARIABLES = ("GOOGLE_CLOUD_PROJECT", "CLOUDSDK_CORE_PROJECT")
SERVICE = re.compile(r"[a-z]{1,30}\.googleapis\.com")
"""How a service is called; nothing else of an error is shown."""
LOGIN_FIX = "log in again (`gcloud auth application-default login`), then repeat the command."
NO_PROJECT_FIX = "set GOOGLE_CLOUD_PROJECT to the id of a project."


class GcpClients:
    """Clients of one project and its credentials.

    Args:
        credentials: As google-auth makes them; None: the application default credentials.
        project: Its id; None: that of the environment or the credentials.
        patience: Time-outs and tries.
        api_endpoint: Where all services are, instead of Google.
    """

    def __init__(
        self,
        credentials: Any = None,
        *,
        project: str | None = None,
        patience: Patience | None = None,
        api_endpoint: str | None = None,
    ) -> None:
        self.patience = patience or Patience()
        self._options = {} if api_endpoint is None else {"api_endpoint": api_endpoint}
        default_project = None
        if credentials is None:
            credentials, default_project = _default_credentials()
        self._credentials = credentials
        named = (os.environ.get(name) for name in PROJECT_VARIABLES)
        self._project = project or next(filter(None, named), None) or default_project

    @property
    def project(self) -> str:
        """The id of the project; raises CloudError where none is known."""
        if self._project is None:
            raise CloudError("no Google Cloud project is named", fix=NO_PROJECT_FIX)
        return self._project

    def client(self, module: str, name: str) -> Any:
        """Return a client of one service, made anew: it is cheap, and no two threads share one."""
        return _client_class(module, name)(
            credentials=self._credentials, transport="rest", client_options=self._options
        )

    def all_of(
        self, module: str, name: str, method: str, permission: str, request: Mapping[str, Any]
    ) -> list[Any]:
        """Return every item of every page that a request answers.

        Raises:
            CloudError: Google refused, or did not answer.
        """
        return self._ask(module, name, method, permission, request, list)

    def one(
        self, module: str, name: str, method: str, permission: str, request: Mapping[str, Any]
    ) -> Any:
        """Return what a request without pages answers; raises as `all_of` does."""
        return self._ask(module, name, method, permission, request, lambda answer: answer)

    def _ask(
        self,
        module: str,
        name: str,
        method: str,
        permission: str,
        request: Mapping[str, Any],
        read: Callable[[Any], T],
    ) -> T:
        with meaning(permission):
            call = getattr(self.client(module, name), method)

        def ask() -> T:
            with meaning(permission):
                timeout_s = self.patience.answer_timeout_s
                return read(call(request=dict(request), retry=None, timeout=timeout_s))

        return asked_again(ask, self.patience)


@contextmanager
def meaning(permission: str) -> Iterator[None]:
    """Raise what Google's libraries raise in the block as a CloudError, without its message."""
    api = _library("google.api_core.exceptions")
    auth = _library("google.auth.exceptions")
    requests = _library("requests.exceptions")
    parsing = _library("google.protobuf.json_format")
    try:
        yield
    except auth.RefreshError:
        raise CloudError("the Google login has expired", fix=LOGIN_FIX) from None
    except auth.GoogleAuthError:
        raise CloudError("no Google credentials", fix=LOGIN_FIX) from None
    except (api.Unauthorized, api.Unauthenticated):
        raise CloudError("Google does not know these credentials", fix=LOGIN_FIX) from None
    except (api.Forbidden, api.PermissionDenied) as error:
        raise _refused(error, permission) from None
    except (api.TooManyRequests, api.ServerError, api.RetryError):
        raise CloudError("Google is too busy", temporary=True) from None
    except api.GoogleAPICallError as error:
        raise CloudError(f"Google answers {type(error).__name__}") from None
    except requests.Timeout:
        raise CloudError("no answer in time", temporary=True) from None
    except (parsing.ParseError, json.JSONDecodeError, requests.ChunkedEncodingError):
        raise CloudError("the answer is cut off or damaged", temporary=True) from None
    except (requests.RequestException, ConnectionError):
        raise CloudError("no connection", temporary=True) from None


def _refused(error: Any, permission: str) -> CloudError:
    """Return what a refusal lacks: a permission, or a service that nobody has enabled."""
    service = str((getattr(error, "metadata", None) or {}).get("service"))
    if getattr(error, "reason", None) == "SERVICE_DISABLED" and SERVICE.fullmatch(service):
        fix = f"run `gcloud services enable {service}`."
        return CloudError(f"{service} is not enabled for the project", fix=fix)
    return CloudError("not permitted", permission=permission)


def _default_credentials() -> tuple[Any, str | None]:
    auth = _library("google.auth")
    # MLflow and others bring google-auth alone: that is a missing library, and no missing login.
    _library("google.api_core.exceptions")
    scopes = ["https://www.googleapis.com/auth/cloud-platform"]
    try:
        with meaning("iam"):
            found: tuple[Any, str | None] = auth.default(scopes=scopes)
    except CloudError as error:
        raise CloudError("no Google credentials", fix=error.fix or LOGIN_FIX) from None
    except (AttributeError, KeyError, OSError, TypeError, ValueError):
        # A file of another shape than google-auth expects comes out as any of these.
        raise CloudError("the Google credentials cannot be read", fix=LOGIN_FIX) from None
    return found


def _client_class(module: str, name: str) -> Any:
    try:
        return client_class(module, name)
    except ImportError:
        raise missing_library(module, "gcp") from None


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise missing_library(name, "gcp") from None
