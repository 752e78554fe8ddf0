"""One local HTTP server with faults that can be put into its answers."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Request:
    """What a client sent."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class Answer:
    """What the server sends back."""

    body: bytes
    status: int = 200
    kind: str = "application/json"
    delay_s: float = 0.0
    claimed_bytes: int | None = None
    """A length that is larger than the body: the connection ends before it is whole."""


def as_json(value: Any, status: int = 200) -> Answer:
    return Answer(json.dumps(value).encode(), status)


@dataclass
class Server:
    """A server on a free port of this machine; `handle` makes its answers."""

    handle: Callable[[Request], Answer]
    seen: list[Request] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Server:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._answer()

            def do_POST(self) -> None:
                self._answer()

            def _answer(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                path, _, query = self.path.partition("?")
                request = Request(
                    self.command, path, query, dict(self.headers), self.rfile.read(length)
                )
                outer.seen.append(request)
                answer = outer.handle(request)
                if answer.delay_s and outer.ended.wait(answer.delay_s):
                    return
                self.send_response(answer.status)
                self.send_header("Content-Type", answer.kind)
                length = len(answer.body) if answer.claimed_bytes is None else answer.claimed_bytes
                self.send_header("Content-Length", str(length))
                if answer.claimed_bytes is not None:
                    self.close_connection = True
                self.end_headers()
                self.wfile.write(answer.body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        class Listener(ThreadingHTTPServer):
            # A client that finds the queue full asks again after a second, which is its time limit.
            request_queue_size = 128

        self._http = Listener(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._http.block_on_close = False
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.ended.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        host, port = self._http.server_address[:2]
        return f"http://{host!s}:{port}"
