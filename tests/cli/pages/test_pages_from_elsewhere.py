"""What other programs and pages of this machine may not read of a running `gpuplan ui`."""

from __future__ import annotations

import http.client
import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import kept_pages
import pytest
from served_pages import Opener, Served

pytestmark = pytest.mark.slow


def answer_of(served: Served, path: str, **headers: str) -> tuple[int, str]:
    """Return what the process answers to a request with these headers alone."""
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=20)
    try:
        connection.putrequest("GET", path, skip_host=True)
        for name, value in headers.items():
            connection.putheader(name.replace("_", "-"), value)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_the_process_answers_the_right_browser_alone(served: Served) -> None:
    token = served.address.partition("token=")[2]
    host = f"127.0.0.1:{served.port}"
    right = {"host": host, "cookie": f"gpuplan-{served.port}={token}"}
    assert answer_of(served, "/launches", **right)[0] == 200
    for wrong in (
        {**right, "host": f"evil.example:{served.port}"},
        {**right, "host": "evil.example"},
        {**right, "origin": "https://evil.example"},
        {**right, "sec_fetch_site": "cross-site"},
        {**right, "cookie": f"gpuplan-{served.port}={token[:-1]}"},
        {"host": host},
    ):
        status, text = answer_of(served, "/launches", **wrong)
        assert status == 403, wrong
        assert kept_pages.OPEN not in text
    assert answer_of(served, f"/?token={token[:-1]}x", host=host)[0] == 403


class Elsewhere(http.server.BaseHTTPRequestHandler):
    """A page of somebody else on this machine: it would like to read ours."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>elsewhere</title>")

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextmanager
def elsewhere() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()


def test_a_page_of_another_port_reads_nothing_though_the_cookie_is_sent(
    opened: Opener, served: Served
) -> None:
    page = opened("overview").page
    with elsewhere() as address:
        page.goto(address)
        for mode in ("cors", "no-cors"):
            read = page.evaluate(
                "([url, mode]) => fetch(url, {mode, credentials: 'include'})"
                ".then(answer => answer.text(), () => 'refused')",
                [served.url("launches"), mode],
            )
            assert read == "refused"
        page.evaluate(
            "src => document.body.append(Object.assign(document.createElement('iframe'), {src}))",
            served.url("launches"),
        )
        page.wait_for_timeout(300)
        assert all(kept_pages.OPEN not in frame.content() for frame in page.frames[1:])
