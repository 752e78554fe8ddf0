"""A metadata service on the loopback, of the shape that AWS, Google and Azure document."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email.message import Message

from gpuplan.launcher.guard.node.metadata import METADATA, request

TOKEN = "a-token"
AWS_ACTION = {"action": "terminate", "time": "2026-11-23T18:02:00Z"}
AZURE_EVENT = {
    "EventId": "C7061BAC-AFDC-4513-B24B-AA5F13A16123",
    "EventType": "Preempt",
    "ResourceType": "VirtualMachine",
    "Resources": ["node-0"],
    "EventStatus": "Scheduled",
    "NotBefore": "Mon, 23 Nov 2026 18:02:00 GMT",
    "Description": "",
    "EventSource": "Platform",
    "DurationInSeconds": -1,
}


class MetadataService:
    """What it says; without a notice until `warn` is called."""

    def __init__(self, base: str) -> None:
        self.base = base
        self.lifecycle = "spot"
        self.is_warned = False
        self.azure_events: list[object] = []
        self.asked = 0
        """Requests so far."""

    def warn(self) -> None:
        """Give notice from now on."""
        self.is_warned = True
        self.azure_events = [AZURE_EVENT]

    def ask(self, method: str, url: str, headers: Mapping[str, str]) -> str:
        """Ask this service in place of the one of a machine."""
        return request(method, url.replace(METADATA, self.base), headers)

    def answer(self, method: str, path: str, headers: Message) -> tuple[int, str]:
        """Return status and text for a request."""
        self.asked += 1
        path, _, query = path.partition("?")
        if path == "/latest/api/token":
            has_ttl = headers.get("X-aws-ec2-metadata-token-ttl-seconds")
            return (200, TOKEN) if method == "PUT" and has_ttl else (400, "")
        if path.startswith("/latest/"):
            if headers.get("X-aws-ec2-metadata-token") != TOKEN:
                return 401, ""
            return self._aws(path)
        if path.startswith("/computeMetadata/v1/"):
            if headers.get("Metadata-Flavor") != "Google":
                return 403, "Missing Metadata-Flavor:Google header."
            return self._google(path)
        if headers.get("Metadata") != "true" or "api-version=" not in query:
            return 400, '{"error": "Bad request."}'
        return self._azure(path)

    def _aws(self, path: str) -> tuple[int, str]:
        if path.endswith("/spot/instance-action") and self.is_warned:
            return 200, json.dumps(AWS_ACTION)
        is_lifecycle = path.endswith("/meta-data/instance-life-cycle")
        return (200, self.lifecycle) if is_lifecycle else (404, "Not Found")

    def _google(self, path: str) -> tuple[int, str]:
        if path.endswith("/instance/preempted"):
            return 200, "TRUE" if self.is_warned else "FALSE"
        is_market = path.endswith("/scheduling/preemptible")
        return (200, "TRUE" if self.lifecycle == "spot" else "FALSE") if is_market else (404, "")

    def _azure(self, path: str) -> tuple[int, str]:
        if path == "/metadata/scheduledevents":
            return 200, json.dumps({"DocumentIncarnation": 1, "Events": self.azure_events})
        return (200, "node-0") if path.endswith("/compute/name") else (404, "")


@contextmanager
def metadata_service() -> Iterator[MetadataService]:
    """Yield one that answers on the loopback."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, text = service.answer(self.command, self.path, self.headers)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text.encode())

        do_PUT = do_GET

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    service = MetadataService(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield service
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
