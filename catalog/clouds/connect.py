"""The clouds by name, made when they are asked for; one that cannot be is its reason."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from importlib import import_module

from ..errors import UsageError, did_you_mean
from .interface import Cloud, CloudError
from .sellers.hosted import SELLERS, HostedSeller

CLOUDS = {"aws": "Aws", "gcp": "Gcp", "azure": "Azure"}
"""Provider → class in `cloud.py` of the room of that name."""
CHATTY = ("azure", "boto3", "botocore", "google", "gpuhunt", "urllib3")
"""Libraries that log what they do."""


def known_clouds(names: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the providers that are meant; none given: the clouds with an account.

    Raises:
        UsageError: One of them has no client here.
    """
    wanted = tuple(dict.fromkeys(names)) or tuple(CLOUDS)
    known = (*CLOUDS, *SELLERS)
    for name in wanted:
        if name not in CLOUDS and name not in SELLERS:
            raise UsageError(
                f"{name} cannot be asked for prices or quota.{did_you_mean(name, known)}",
                fix=f"give one of {', '.join(known)}; the prices of others are those of the"
                " package, or of your --offers file.",
            )
    return wanted


def connect(name: str) -> Cloud | CloudError:
    """Return one cloud with the user's own account, or why it cannot be asked."""
    for library in CHATTY:
        # Python prints warnings of a logger without a handler, and these are about nothing that
        # the user can act on; what went wrong is in the answer.
        logging.getLogger(library).addHandler(logging.NullHandler())
    try:
        if name in SELLERS:
            return HostedSeller(name)
        module = import_module(f".{name}.cloud", __package__)
        cloud: Cloud = getattr(module, CLOUDS[name])()
    except CloudError as error:
        return error
    return cloud
