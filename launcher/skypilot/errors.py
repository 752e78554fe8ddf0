"""What SkyPilot raises, as one clear error each."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator
from typing import Any

from ..lifecycle.engine import EngineError, NoAccessError, NoCapacityError, NoEngineError
from ..redaction import redacted

ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
LONGEST_SAID = 600


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
    except errors.ClusterNotUpError as error:
        raise NothingThereError(_said(error)) from None
    except errors.RequestCancelled as error:
        raise EngineError(f"The request was cancelled: {_said(error)}") from None
    except EngineError:
        raise
    except (ValueError, RuntimeError, *_own_errors(errors)) as error:
        raise EngineError(
            f"SkyPilot refused: {_said(error)}",
            fix="nothing more was asked of it; `gpuplan status` says what is rented.",
        ) from None


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
