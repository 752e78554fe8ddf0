"""The routes of `gpuplan ui`. Each asks the api anew, so that a page is as the store is now."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import UTC, datetime

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from ... import api
from ...catalog.errors import GpuplanError, UsageError
from ..render.report.formats.html import render_html
from . import launch_views, price_views, project_views, views
from .door import Door
from .page import Lines, View, asset, render, style

REPORT_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none';"
    " form-action 'none'; frame-ancestors 'none'"
)
"""A report is one file with its style inside, and has no script."""


def make_app(
    *,
    token: str,
    port: int,
    project: str | None = None,
    now: Callable[[], datetime] | None = None,
) -> Door:
    """Return the pages as an ASGI application, behind their door.

    Args:
        token: The secret of this run.
        port: Where it listens.
        project: A project file or its folder, whose report is the first page.
        now: The clock; default: the current time in UTC.
    """
    clock = now or (lambda: datetime.now(UTC))

    def shown(make: Callable[[Request], View]) -> Callable[[Request], Response]:
        return lambda request: _answer(request, lambda: _page(request, make(request)))

    def report(request: Request) -> Response:
        return _answer(request, lambda: _report(request))

    routes = [
        Route("/", shown(lambda _request: views.overview())),
        Route("/project", lambda request: _answer(request, lambda: _project(request, project))),
        Route("/project/{key}", shown(lambda one: _of_project(one, clock()))),
        Route("/estimate/{key}", shown(lambda one: views.estimate(one.path_params["key"]))),
        Route("/plan/{id}", shown(lambda one: _plan(one, clock()))),
        Route("/report/{key}", report),
        Route("/report/{key}/charts", report, name="charts"),
        Route("/launches", shown(lambda _request: launch_views.launches(clock()))),
        Route("/launch/{run:path}", shown(lambda one: _launch(one, clock()))),
        Route("/prices", shown(lambda _request: price_views.prices(clock().date()))),
        Route("/static/ui.css", lambda _request: Response(style(), media_type="text/css")),
        Route(
            "/static/ui.js",
            lambda _request: Response(asset("ui.js"), media_type="text/javascript"),
        ),
        Route("/{rest:path}", lambda request: _answer(request, _nowhere)),
    ]
    start = "/" if project is None else "/project"
    return Door(Starlette(routes=routes), token=token, port=port, start=start)


def warm_up() -> None:
    """Make the slowest pages once: no reader waits for imports, templates and the catalogue.

    What cannot be read is said on the page, when it is asked for.
    """
    now = datetime.now(UTC)
    for make in (
        views.overview,
        lambda: launch_views.launches(now),
        lambda: price_views.prices(now.date()),
    ):
        with contextlib.suppress(GpuplanError):
            render(make(), path="/")
    for key, report in api.kept_reports().items():
        render(project_views.project(key, now), path="/")
        render_html(report, draws=False)
        break


def _answer(request: Request, make: Callable[[], Response]) -> Response:
    """Return a page, or one that says why there is none: never a traceback."""
    try:
        return make()
    except UsageError as error:
        return _failed(request, "This page is not there", str(error), 404)
    except GpuplanError as error:
        return _failed(request, "This page cannot be shown", str(error), 500)
    except Exception as error:
        text = f"gpuplan itself failed: {type(error).__name__}: {error}"
        return _failed(request, "This page cannot be shown", text, 500)


def _failed(request: Request, title: str, text: str, status: int) -> Response:
    lines = Lines(caption="Why", lines=tuple(text.splitlines()))
    return _page(request, View(title=title, blocks=(lines,)), status)


def _page(request: Request, view: View, status: int = 200) -> Response:
    return HTMLResponse(render(view, path=request.url.path), status)


def _report(request: Request) -> Response:
    """Return the page of `gpuplan report`; charts take seconds, so they have their own address."""
    report = views.report(request.path_params["key"])
    draws = None if request.url.path.endswith("/charts") else False
    headers = {"content-security-policy": REPORT_POLICY}
    return HTMLResponse(render_html(report, draws=draws), headers=headers)


def _plan(request: Request, now: datetime) -> View:
    return views.plan(
        request.path_params["id"], launches=lambda plan: launch_views.launches_of(plan, now)
    )


def _launch(request: Request, now: datetime) -> View:
    return launch_views.launch(request.path_params["run"], now)


def _of_project(request: Request, now: datetime) -> View:
    return project_views.project(request.path_params["key"], now)


def _project(request: Request, project: str | None) -> Response:
    """Return where the page of the project is that was named, or how to make its report."""
    named = project or "gpuplan.yaml"
    found = api.kept_reports(named)
    if not found:
        return _page(request, views.missing_report(named), 404)
    return RedirectResponse(f"/project/{next(iter(found))}", 303)


def _nowhere() -> Response:
    raise UsageError("There is no such page.", fix="go back to the overview.")
