"""Listens on 127.0.0.1, for this machine alone, until Ctrl-C."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable

import uvicorn

from ...catalog.errors import UsageError
from .app import make_app, warm_up
from .door import ADDRESS

TOKEN_BYTES = 32
END_S = 2
"""What requests under way get after Ctrl-C."""


def serve(*, project: str | None, port: int, tell: Callable[[str], None]) -> None:
    """Serve the pages until the process is interrupted.

    Args:
        project: A project file or its folder, whose report is shown first; None: the overview.
        port: Where to listen; 0: where the system has one free.
        tell: Called with the address to open, once it can be opened.

    Raises:
        UsageError: The port cannot be used.
        KeyboardInterrupt: Ctrl-C, after everything was closed.
    """
    warm_up()
    token = secrets.token_urlsafe(TOKEN_BYTES)
    with _listening(port) as listener:
        bound = listener.getsockname()[1]
        config = uvicorn.Config(
            make_app(token=token, port=bound, project=project),
            http="h11",
            loop="asyncio",
            ws="none",
            lifespan="off",
            # An access log would hold the token.
            access_log=False,
            log_config=None,
            log_level="critical",
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=END_S,
        )
        # The socket listens already: what is asked before the server runs waits in its queue.
        tell(f"http://{ADDRESS}:{bound}/?token={token}")
        uvicorn.Server(config).run(sockets=[listener])


def _listening(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((ADDRESS, port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise UsageError(
            f"Port {port} of {ADDRESS} cannot be used: {error.strerror}.",
            fix="give another one, or leave --port out for one that is free.",
        ) from None
    return listener
