"""The pages: dashboard, inbox, runs, login. Scripts and styles are files; nothing comes from outside."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.staticfiles import StaticFiles

from driftwise.serve.access import COOKIE, SESSION_SECONDS, Access, Caller
from driftwise.serve.service import Service
from driftwise.serve.views import RunsView

STATIC = Path(__file__).parent / "static"
MAX_TOKEN = 1000


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("driftwise.serve"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )


def add_pages(app: FastAPI, service: Service, access: Access, runs: RunsView | None) -> None:
    """Add all pages to an application; without a learner, only that of runs is shown."""
    shown = [] if runs is not None and runs.alone else [("/", "Dashboard"), ("/inbox", "Inbox")]
    shown += [] if runs is None else [("/runs", "Runs")]
    app.mount("/static", StaticFiles(directory=STATIC), name="static")

    def page(name: str, request: Request, title: str, *, status: int = 200) -> HTMLResponse:
        caller: Caller | None = request.state.caller
        html = (
            _environment()
            .get_template(f"{name}.html")
            .render(
                title=title,
                script=f"{name}.js" if (STATIC / f"{name}.js").exists() else None,
                csrf=access.csrf_token(None if caller is None else caller.session),
                caller=caller,
                is_admin=caller is not None and caller.may("admin"),
                has_tokens=access.has_tokens,
                pages=shown,
                path=request.url.path,
                failed=status == 403,
            )
        )
        return HTMLResponse(html, status)

    @app.get("/", include_in_schema=False)
    async def dashboard(request: Request) -> Response:
        if runs is not None and runs.alone:
            return RedirectResponse("/runs", 303)
        return page("dashboard", request, "Dashboard")

    @app.get("/inbox", include_in_schema=False)
    async def inbox(request: Request) -> Response:
        return page("inbox", request, "Inbox")

    @app.get("/runs", include_in_schema=False)
    async def show_runs(request: Request) -> Response:
        return page("runs", request, "Runs")

    @app.get("/login", include_in_schema=False)
    async def login(request: Request) -> Response:
        return page("login", request, "Log in")

    @app.post("/login", include_in_schema=False)
    async def log_in(request: Request) -> Response:
        async with request.form(max_files=0, max_fields=2, max_part_size=MAX_TOKEN) as form:
            token = form.get("token")
        session = access.log_in(token) if isinstance(token, str) else None
        if session is None:
            service.audit.append("nobody", "login refused")
            return page("login", request, "Log in", status=403)
        response = RedirectResponse("/", 303)
        response.set_cookie(
            COOKIE,
            session,
            max_age=SESSION_SECONDS,
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return response

    @app.post("/logout", include_in_schema=False)
    async def log_out(request: Request) -> Response:
        caller: Caller | None = request.state.caller
        if caller is not None and caller.session is not None:
            access.log_out(caller.session)
        response = Response(status_code=204)
        response.delete_cookie(COOKIE)
        return response
