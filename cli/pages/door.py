"""Who may read the pages: the browser of the person who has the token, and no page of others.

A page on the internet can make a browser ask 127.0.0.1, under a host name of its own too (DNS
rebinding), so each request must have the right Host, no foreign Origin, and the token.
https://cheatsheetseries.owasp.org/cheatsheets/Cross-Site_Request_Forgery_Prevention_Cheat_Sheet.html
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import PlainTextResponse, RedirectResponse, Response

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

ADDRESS = "127.0.0.1"
HOSTS = (ADDRESS, "localhost")
METHODS = ("GET", "HEAD")
FETCH_SITES = ("none", "same-origin")
"""Typed or followed from outside of a browser, or from a page of this address.
https://www.w3.org/TR/fetch-metadata/"""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:;"
    " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""No inline script or style, no eval, nothing from elsewhere. https://www.w3.org/TR/CSP3/"""
HEADERS = {
    "content-security-policy": POLICY,
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
ASK_AGAIN = "Open the address that `gpuplan ui` printed: it has the token of this run.\n"


class Door:
    """Lets requests in to an application, or answers them itself, with safe headers for both.

    Args:
        app: What answers those who may read.
        token: The secret of this run.
        port: Where it listens: part of Host and Origin.
        start: The page that the printed address leads to.
    """

    def __init__(self, app: ASGIApp, *, token: str, port: int, start: str = "/") -> None:
        self.app = app
        self.start = start
        self.token = token
        self.cookie = f"gpuplan-{port}"
        ends = ("", f":{port}") if port == 80 else (f":{port}",)
        self.hosts = {f"{name}{end}" for name in HOSTS for end in ends}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; what is no HTTP request (a websocket) is not answered."""
        if scope["type"] != "http":
            return
        answer = self._refusal(scope) or self._entry(scope) or self.app

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await answer(scope, receive, send_safely)

    def _refusal(self, scope: Scope) -> Response | None:
        """Return the answer to a request that no page of ours makes; None for others."""
        headers = Headers(scope=scope)
        if scope["method"] not in METHODS:
            text = "The pages are read-only: GET and HEAD alone.\n"
            return PlainTextResponse(text, 405, {"allow": ", ".join(METHODS)})
        hosts = headers.getlist("host")
        if len(hosts) != 1 or hosts[0].lower() not in self.hosts:
            return PlainTextResponse("This host name is not served here.\n", 403)
        origins = {f"http://{host}" for host in self.hosts}
        is_foreign = any(one.lower() not in origins for one in headers.getlist("origin"))
        sites = headers.getlist("sec-fetch-site")
        if is_foreign or any(one.lower() not in FETCH_SITES for one in sites):
            return PlainTextResponse("Other pages may not read this one.\n", 403)
        return None

    def _entry(self, scope: Scope) -> Response | None:
        """Return the answer to the printed address, or to a request without the token."""
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [])
        if scope["path"] == "/" and given:
            if len(given) != 1 or not self._is_token(given[0]):
                return PlainTextResponse(ASK_AGAIN, 403)
            # Without it in the address it is not in the history, nor in what a reader copies.
            answer = RedirectResponse(self.start, 303)
            answer.set_cookie(self.cookie, self.token, httponly=True, samesite="strict", path="/")
            return answer
        cookies = cookie_parser(Headers(scope=scope).get("cookie", ""))
        if not self._is_token(cookies.get(self.cookie, "")):
            return PlainTextResponse(ASK_AGAIN, 403)
        return None

    def _is_token(self, given: str) -> bool:
        """Compare in a time that does not tell how much of it is right."""
        return secrets.compare_digest(given.encode(), self.token.encode())
