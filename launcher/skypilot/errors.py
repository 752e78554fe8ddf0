"""What SkyPilot raises, as one clear error each."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from ...catalog.errors import GpuplanError
from ..lifecycle.engine import (
    EngineError,
    LostTouchError,
    NoAccessError,
    NoCapacityError,
    NoEngineError,
)
from ..redaction import redacted

ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
LONGEST_SAID = 600

HTTP_LIBRARIES = ("requests", "urllib3", "http", "aiohttp")
"""By which SkyPilot's own library asks its server; it hands on what they raise."""
LOST: Mapping[str, str] = {
    "ConnectTimeout": "it could not be reached in time",
    "ConnectTimeoutError": "it could not be reached in time",
    "ReadTimeout": "it did not answer in time",
    "ReadTimeoutError": "it did not answer in time",
    "Timeout": "it did not answer in time",
    "TimeoutError": "it did not answer in time",
    "ServerTimeoutError": "it did not answer in time",
    "SSLError": "no secure connection to it was made",
    "ProxyError": "the proxy on the way to it does not answer",
    "ChunkedEncodingError": "its answer broke off",
    "ContentDecodingError": "its answer cannot be read",
    "IncompleteRead": "its answer broke off",
    "ProtocolError": "its answer broke off",
    "JSONDecodeError": "its answer cannot be read",
    "NewConnectionError": "no connection to it was made",
    "NameResolutionError": "the name of its machine is not known",
    "HTTPError": "it answered with an error",
    "TooManyRedirects": "it sends the question elsewhere without end",
    "RetryError": "it was asked several times in vain",
    "MaxRetryError": "it was asked several times in vain",
    "InvalidURL": "its address is not valid",
    "InvalidSchema": "its address is not valid",
    "MissingSchema": "its address is not valid",
    "ServerTemporarilyUnavailableError": "it is not available for the moment",
    "RequestInterruptedError": "it was interrupted, as by a restart",
    "ConnectionError": "the connection was lost",
}
"""How a connection was lost, by the class of the error, its own or one that it is a kind of."""
LOST_ELSEWHERE = (
    "ConnectionError",
    "TimeoutError",
    "ServerTemporarilyUnavailableError",
    "RequestInterruptedError",
)
"""The same from Python itself and from `sky.exceptions`."""


class NothingThereError(EngineError):
    """There is no such cluster, or no controller of jobs."""


@contextlib.contextmanager
def explained(errors: Any) -> Iterator[None]:
    """Turn what SkyPilot raises into one clear error.

    Args:
        errors: `sky.exceptions`.
    """
    try:
        # What it says on the way is no data of ours.
        with contextlib.redirect_stdout(sys.stderr):
            yield
    except errors.ResourcesUnavailableError as error:
        raise _unavailable(error) from None
    except errors.NoCloudAccessError as error:
        raise NoAccessError(
            f"SkyPilot has no cloud to rent from: {_said(error)}",
            fix="see `gpuplan check`, which says what each cloud needs.",
        ) from None
    except (errors.ApiServerConnectionError, errors.ApiServerAuthenticationError) as error:
        raise NoEngineError(
            f"SkyPilot's server does not answer: {_said(error)}",
            fix="start it with `sky api start`, or see `sky api info`.",
        ) from None
    except (errors.ClusterNotUpError, errors.ClusterDoesNotExist) as error:
        raise NothingThereError(_said(error)) from None
    except errors.RequestCancelled as error:
        raise EngineError(f"The request was cancelled: {_said(error)}") from None
    except GpuplanError:
        raise
    except Exception as error:
        raise _other(error, errors) from None


@contextlib.contextmanager
def understood() -> Iterator[None]:
    """Turn an answer of SkyPilot that has another form than it is read in into one clear error.

    Nothing may be concluded from such an answer: what it does not name may be there.
    """
    try:
        yield
    except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
        raise EngineError(
            "SkyPilot answered in a form that gpuplan does not know"
            f" ({type(error).__name__}: {_said(error)}), so that nothing is concluded from it.",
            fix="see with `sky api info` which SkyPilot its server runs; `pip install"
            ' "gpuplan[sky]"` installs the one that gpuplan works with.',
        ) from None


def _other(error: Exception, errors: Any) -> EngineError:
    """Return the error for all that has no class of its own.

    What its server raises is raised again here, whatever it is.
    """
    lost = _lost(error)
    if lost is not None:
        return LostTouchError(
            f"The connection to SkyPilot's server was lost: {lost} ({_said(error)})",
            fix="what it was asked may have been done: look with `gpuplan status`; `sky api info`"
            " tells whether the server is there.",
        )
    fix = "nothing more was asked of it; `gpuplan status` says what is rented."
    if isinstance(error, (ValueError, RuntimeError, *_own_errors(errors))):
        return EngineError(f"SkyPilot refused: {_said(error)}", fix=fix)
    name = type(error).__name__
    return EngineError(f"SkyPilot failed with {name}: {_said(error)}", fix=fix)


def _lost(error: Exception) -> str | None:
    """Return how a connection was lost; None of an error of another kind."""
    kinds = type(error).__mro__
    names = [one.__name__ for one in kinds]
    is_of_http = any(one.__module__.partition(".")[0] in HTTP_LIBRARIES for one in kinds)
    if not is_of_http and not any(name in LOST_ELSEWHERE for name in names):
        return None
    return next((LOST[name] for name in names if name in LOST), LOST["ConnectionError"])


def _own_errors(errors: Any) -> tuple[type[Exception], ...]:
    """Return all that SkyPilot itself can raise."""
    found = [one for one in vars(errors).values() if isinstance(one, type)]
    return tuple(one for one in found if issubclass(one, Exception))


def _unavailable(error: Any) -> EngineError | NoCapacityError:
    text = _said(error)
    # Without a history nothing was tried: no such machine is sold to this account.
    if not error.failover_history:
        return NoAccessError(
            f"SkyPilot finds no such machines for this account: {text}",
            fix="see `gpuplan check`; a region or an accelerator may not be enabled.",
        )
    return NoCapacityError(
        f"None of the places has these machines now; nothing is rented. {text}",
        fix="name more regions with --region, take another plan with --any-plan, or try later.",
    )


def _said(error: BaseException) -> str:
    """Return what an error says, on one line, without colours or keys."""
    text = redacted(" ".join(ANSI.sub("", str(error)).split()))
    return text if len(text) <= LONGEST_SAID else f"{text[:LONGEST_SAID]} …"
