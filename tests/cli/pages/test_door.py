"""Who may read the pages: the token, Host, Origin and the method are checked on every request."""

import pytest
from starlette.testclient import TestClient

from gpuplan.cli.pages.app import make_app
from gpuplan.cli.pages.door import HEADERS

TOKEN, PORT = "right", 8765
PATHS = ("/", "/launches", "/static/ui.js", "/report/abc", "/nowhere")


@pytest.fixture
def outside() -> TestClient:
    """Return a browser that does not have the token."""
    app = make_app(token=TOKEN, port=PORT)
    return TestClient(app, base_url=f"http://127.0.0.1:{PORT}", follow_redirects=False)


@pytest.fixture
def inside(outside: TestClient) -> TestClient:
    outside.get(f"/?token={TOKEN}")
    return outside


@pytest.mark.parametrize("path", PATHS)
def test_without_the_token_nothing_is_shown(outside: TestClient, path: str) -> None:
    answer = outside.get(path)
    assert answer.status_code == 403
    assert "Open the address" in answer.text


@pytest.mark.parametrize("token", ["wrong", "", "righ", "right1", "é", f"{TOKEN}&token=wrong"])
def test_a_wrong_token_is_refused(outside: TestClient, token: str) -> None:
    answer = outside.get(f"/?token={token}")
    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers


def test_a_wrong_cookie_is_refused(outside: TestClient) -> None:
    for value in ("wrong", "", '"', "\u00e9".encode().decode("latin-1")):
        headers = {b"cookie": f"gpuplan-{PORT}={value}".encode("latin-1")}
        assert outside.get("/", headers=headers).status_code == 403


def test_the_token_leaves_the_address_for_a_cookie_of_this_site_alone(outside) -> None:
    answer = outside.get(f"/?token={TOKEN}")
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie
    assert outside.get("/").status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        f"evil.example:{PORT}",
        "127.0.0.1",
        "127.0.0.1:1",
        "127.0.0.1.evil.example:8765",
    ],
)
def test_another_host_name_is_refused(inside: TestClient, host: str) -> None:
    assert inside.get("/", headers={"host": host}).status_code == 403
    assert inside.get(f"/?token={TOKEN}", headers={"host": host}).status_code == 403


def test_localhost_is_this_machine_too(inside: TestClient) -> None:
    answer = inside.get(f"/?token={TOKEN}", headers={"host": f"localhost:{PORT}"})
    assert answer.status_code == 303


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": f"https://127.0.0.1:{PORT}"},
        {"origin": "http://127.0.0.1:1"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": ""},
    ],
)
def test_other_pages_may_not_read(inside: TestClient, headers: dict[str, str]) -> None:
    assert inside.get("/launches", headers=headers).status_code == 403


def test_a_page_of_this_address_may_read(inside: TestClient) -> None:
    headers = {"origin": f"http://127.0.0.1:{PORT}", "sec-fetch-site": "same-origin"}
    assert inside.get("/launches", headers=headers).status_code == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_nothing_but_reading_is_answered(inside: TestClient, method: str) -> None:
    answer = inside.request(method, "/launches")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")


def test_head_has_no_body(inside: TestClient) -> None:
    answer = inside.head("/")
    assert (answer.status_code, answer.content) == (200, b"")


@pytest.mark.parametrize("path", PATHS)
def test_every_answer_has_safe_headers(outside: TestClient, path: str) -> None:
    for _ in range(2):
        answer = outside.get(path)
        assert {name: answer.headers[name] for name in HEADERS} == HEADERS
        outside.get(f"/?token={TOKEN}")
    policy = HEADERS["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy
