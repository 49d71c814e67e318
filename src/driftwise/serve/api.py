"""The HTTP API, version 1, and the application that serves it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from typing import Annotated, Any, NamedTuple

import numpy as np
from fastapi import APIRouter, Depends, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException

import driftwise
from driftwise.errors import RunFailure, UserError
from driftwise.live.engine import Mode
from driftwise.serve import exchange, views
from driftwise.serve.access import Access, Caller
from driftwise.serve.bodies import (
    FORM_TYPE,
    IMAGE_TYPES,
    JSON_TYPE,
    NPY_TYPE,
    TYPES,
    Expected,
    Inputs,
    as_json,
    from_form,
    from_images,
    from_json,
    from_npy,
)
from driftwise.serve.guard import Guard, refuse_unless_allowed
from driftwise.serve.history import plain
from driftwise.serve.measures import Measures, prometheus
from driftwise.serve.prediction_batches import Batches
from driftwise.serve.service import Conflict, Service, Unavailable
from driftwise.serve.settings import ServeSettings

STREAM_SECONDS = 0.25
"""between two looks for something new to send to a page"""
MAX_LINES = 500
"""of a list in an answer"""
SMALL = 20_000
"""bytes of a JSON body that is decoded at once: quicker than the way to a thread"""
LARGE_AT_ONCE = 4
"""larger bodies, and images, that are decoded and used at the same time, so that memory is bounded"""
PREDICTOR = "driftwise.predictor"
"""in the scope of a request to a process that only predicts: `Follower.newest`"""


_KEY = "a request with the key of an earlier one has no effect"


class Change(BaseModel):
    """A change by an admin, and why."""

    model_config = ConfigDict(extra="forbid")
    reason: str | None = Field(None, max_length=1000, description="why, for the audit log")
    key: str | None = Field(None, min_length=1, max_length=100, description=_KEY)


class ModeChange(Change):
    """Another mode."""

    mode: Mode


class Decision(Change):
    """Classes whose adaptation is approved or dismissed."""

    classes: list[int] | None = Field(None, max_length=10_000, description="null: all that wait")


class Rollback(Change):
    """Return to a snapshot."""

    to: int = Field(ge=0, lt=2**62, description="the number of a snapshot")


class Labels(BaseModel):
    """Labels by sample id."""

    model_config = ConfigDict(extra="forbid")
    ids: list[int] = Field(max_length=100_000)
    labels: list[int | None] = Field(max_length=100_000, description="null: nobody knows")
    correct: bool = Field(False, description="these labels replace wrong ones")
    key: str | None = Field(None, min_length=1, max_length=100, description=_KEY)


class Lease(BaseModel):
    """A labeller asks for samples."""

    model_config = ConfigDict(extra="forbid")
    labeller: str = Field(min_length=1, max_length=100)
    count: int = Field(1, ge=0, le=100)
    held: list[int] = Field(default_factory=list, max_length=1000, description="shown already")


class Skip(BaseModel):
    """A labeller does not want to answer."""

    model_config = ConfigDict(extra="forbid")
    labeller: str = Field(min_length=1, max_length=100)
    id: int


def make_app(
    service: Service,
    *,
    access: Access | None = None,
    hosts: frozenset[str] | None = frozenset(),
    runs: views.RunsView | None = None,
    measures: Measures | None = None,
) -> Guard:
    """The ASGI application of a service, its pages included."""
    from driftwise.serve.pages import add_pages

    access, measures = access or Access(), measures or Measures()
    app = FastAPI(
        title="driftwise",
        version=driftwise.__version__,
        description="A live learner: predictions, samples, labels, drift.",
        docs_url=None,  # its page would load scripts from elsewhere
        redoc_url=None,
        dependencies=[Depends(_check_role)],
    )
    app.include_router(_router(service, measures, runs))
    add_pages(app, service, access, runs)
    _add_error_handlers(app)
    return Guard(app, settings=service.settings, access=access, measures=measures, hosts=hosts)


def make_predict_app(
    batches: Batches,
    *,
    settings: ServeSettings,
    access: Access,
    hosts: frozenset[str] | None,
    measures: Measures,
) -> Guard:
    """The application of a prediction worker; the snapshot to use stands in a request's scope."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    large = asyncio.Semaphore(LARGE_AT_ONCE)

    @app.post("/v1/predict", dependencies=[Depends(_check_role)])
    async def predict(request: Request) -> Response:
        applied, predictor = request.scope[PREDICTOR]
        expected = Expected(shape=predictor.inputs.shape, dtype=predictor.inputs.dtype_name)
        given = await _received(request, settings)
        async with given.limited_by(large):
            x = await _samples(given, expected, settings)
            found = await batches.predict(predictor.predict_proba, x)
        return _predictions(found, applied, settings)

    _add_error_handlers(app)
    return Guard(app, settings=settings, access=access, measures=measures, hosts=hosts)


async def _check_role(request: Request) -> None:
    refuse_unless_allowed(request.state.caller, request.method, request.scope["route"].path)


async def _caller(request: Request) -> Caller:
    caller: Caller = request.state.caller
    return caller


By = Annotated[Caller, Depends(_caller)]


def _samples_body(*, labels: bool) -> dict[str, Any]:
    """The documentation of a body that is read by hand."""
    fields: dict[str, Any] = {
        "x": {"description": 'samples, one or many; or {"npy": a .npy file in base64}'},
        "dtype": {"enum": ["uint8", "float32"]},
    }
    if labels:
        fields |= {
            "y": {"type": "array", "items": {"type": "integer", "nullable": True}},
            "texts": {"type": "array", "items": {"type": "string"}},
            "key": {"type": "string", "maxLength": 100},
        }
    file = {"schema": {"type": "string", "format": "binary"}}
    form = {"images": {"type": "array", "items": file["schema"]}, "x": file["schema"]}
    content = {
        JSON_TYPE: {"schema": {"type": "object", "required": ["x"], "properties": fields}},
        NPY_TYPE: file,
        FORM_TYPE: {
            "schema": {"type": "object", "properties": {**form, "meta": {"type": "string"}}}
        },
        **dict.fromkeys(IMAGE_TYPES, file),
    }
    return {"requestBody": {"required": True, "content": content}}


_ERRORS: dict[int | str, dict[str, Any]] = {
    code: {"description": text}
    for code, text in {
        400: "a body that cannot be read",
        401: "no token, or an unknown one",
        403: "a token without the role",
        404: "there is no such thing",
        408: "the body came too slowly",
        409: "it does not fit the mode",
        413: "too large",
        415: "a content type that is not read",
        422: "something in the request cannot be used; the message says what",
        429: "too many requests",
        503: "not taken; try again later",
    }.items()
}


_ACCEPTED: dict[int | str, dict[str, Any]] = {
    202: {"description": "safe on the disk; not used yet"}
}


def _content(*types: str) -> dict[str, Any]:
    """The documentation of an answer of these content types."""
    content: dict[str, Any] = {each: {} for each in types}
    return {"response_class": Response, "responses": {200: {"content": content}}}


class _Received(NamedTuple):
    """A body that has come, and is not decoded yet."""

    decode: Callable[[Expected], Inputs]
    is_small: bool

    def limited_by(self, large: asyncio.Semaphore) -> contextlib.AbstractAsyncContextManager[Any]:
        """Where to decode and use it: large bodies a few at a time."""
        return contextlib.nullcontext() if self.is_small else large

    async def inputs(self, expected: Expected) -> Inputs:
        """The samples, decoded in a thread."""
        if self.is_small:
            return self.decode(expected)
        return await run_in_threadpool(self.decode, expected)


async def _received(request: Request, settings: ServeSettings) -> _Received:
    """The body of a request with samples."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in TYPES:
        raise HTTPException(415, f"expected one of {', '.join(TYPES)}; got {kind[:100] or 'none'}")
    most = settings.max_decoded
    if kind == FORM_TYPE:
        files, meta = await _form(request, settings)
        return _Received(lambda expected: from_form(files, meta, expected, most), False)
    body = await request.body()
    if kind == JSON_TYPE:
        return _Received(lambda expected: from_json(body, expected), len(body) < SMALL)
    if kind == NPY_TYPE:
        return _Received(lambda expected: Inputs(x=from_npy(body, expected)), False)
    return _Received(lambda expected: Inputs(x=from_images([body], expected, most)), False)


async def _samples(given: _Received, expected: Expected, settings: ServeSettings) -> np.ndarray:
    """Samples to predict."""
    x = (await given.inputs(expected)).x
    if len(x) > settings.max_batch:
        raise UserError(f"expected at most {settings.max_batch} samples; got {len(x)}")
    return x


def _predictions(probabilities: np.ndarray, applied: int, settings: ServeSettings) -> Response:
    """The answer to a prediction by a snapshot that knows all changes up to `applied`."""
    some = len(probabilities) > 0
    predicted = probabilities.argmax(axis=1) if some else np.zeros(0, dtype=np.int64)
    best = probabilities.max(axis=1) if some else np.zeros(0)
    answer = {
        "predicted": predicted.tolist(),
        "names": [settings.name_of(label) for label in predicted.tolist()],
        "confidence": np.round(best.astype(float), 6).tolist(),
        "probabilities": np.round(probabilities.astype(float), 6).tolist(),
        "applied": applied,
    }
    return Response(as_json(answer), media_type=JSON_TYPE)


async def _form(
    request: Request, settings: ServeSettings
) -> tuple[dict[str, list[bytes]], str | None]:
    """The files of a form by field, and its meta."""
    form = request.form(max_files=settings.max_batch, max_fields=4, max_part_size=2**20)
    async with form as found:
        files: dict[str, list[bytes]] = {}
        meta = None
        for name, value in found.multi_items():
            if isinstance(value, UploadFile):
                files.setdefault(name, []).append(await value.read())
            elif name == "meta":
                meta = value
            else:
                raise UserError(f"unknown field {name!r:.100} of the form (known: images, meta, x)")
    return files, meta


async def _outcome(future: Future[dict[str, Any]], *, wait: bool = True) -> Response:
    """The acknowledgement of a change, which is safe by now."""
    if not wait:
        return Response(as_json({"accepted": True}), 202, media_type=JSON_TYPE)
    return _json(await asyncio.wrap_future(future))


def _json(value: Any) -> Response:
    return Response(as_json(plain(value)), media_type=JSON_TYPE)


def _router(service: Service, measures: Measures, runs: views.RunsView | None) -> APIRouter:
    router = APIRouter(responses=_ERRORS)
    settings, batches = service.settings, Batches()
    large = asyncio.Semaphore(LARGE_AT_ONCE)

    def expected() -> Expected:
        return Expected.of(service.view["status"])

    # Predicting and learning

    @router.post("/v1/predict", tags=["samples"], openapi_extra=_samples_body(labels=False))
    async def predict(request: Request) -> Response:
        """Classes and their probabilities, one line per sample, from the newest snapshot."""
        given = await _received(request, settings)
        async with given.limited_by(large):
            x = await _samples(given, expected(), settings)
            applied = service.view["applied"]
            found = await batches.predict(service.predict, x)
        return _predictions(found, applied, settings)

    @router.post(
        "/v1/observe",
        tags=["samples"],
        openapi_extra=_samples_body(labels=True),
        responses=_ACCEPTED,
    )
    async def observe(request: Request, by: By, wait: bool = True) -> Response:
        """Samples to predict, monitor and learn; acknowledged once they are on the disk."""
        received = await _received(request, settings)
        async with received.limited_by(large):
            given = await received.inputs(expected())
            future = await run_in_threadpool(
                service.observe, given.x, given.y, texts=given.texts, key=given.key, by=by.name
            )
            del given
        return await _outcome(future, wait=wait)

    @router.post("/v1/probe", tags=["samples"], openapi_extra=_samples_body(labels=True))
    async def probe(request: Request, by: By) -> Response:
        """Labelled samples that are only scored, never learned."""
        received = await _received(request, settings)
        async with received.limited_by(large):
            given = await received.inputs(expected())
            future = await run_in_threadpool(
                service.probe, given.x, given.y, key=given.key, by=by.name
            )
            del given
        return await _outcome(future)

    # Labels

    @router.post("/v1/labels", tags=["labels"], responses=_ACCEPTED)
    async def labels(body: Labels, by: By, wait: bool = False) -> Response:
        """Late labels by sample id; safe on the disk when acknowledged."""
        future = await run_in_threadpool(
            service.label, body.ids, body.labels, by=by.name, key=body.key, correct=body.correct
        )
        return await _outcome(future, wait=wait)

    @router.post(
        "/v1/labels/import",
        tags=["labels"],
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {kind: {"schema": {"type": "string"}} for kind in exchange.IMPORT_TYPES},
            }
        },
    )
    async def import_labels(request: Request, by: By) -> Response:
        """Labels from a file: CSV or JSONL with id and label, or Label Studio's JSON."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind not in exchange.IMPORT_TYPES:
            raise HTTPException(415, f"expected one of {', '.join(exchange.IMPORT_TYPES)}")
        body = await request.body()
        async with large:
            ids, given = await run_in_threadpool(exchange.read_labels, body, kind, settings)
        future = await run_in_threadpool(service.label, ids, given, by=by.name)
        await asyncio.wrap_future(future)
        return _json({"labels": len(ids)})

    @router.get("/v1/requests", tags=["labels"], **_content(*exchange.IMPORT_TYPES))
    async def requests(format: str = "json") -> Response:
        """Samples that wait for labels, the most valuable first."""
        cards = service.board.cards()
        if format == "json":
            return _json({"requests": [views.card(each, settings) for each in cards]})
        _refuse_unknown(format)
        return _file(exchange.EXPORTS[format](cards, settings))

    @router.get("/v1/answers", tags=["labels"], **_content(*exchange.IMPORT_TYPES))
    async def answers(format: str = "json") -> Response:
        """The last labels of people, oldest first: who gave which, and when."""
        with service.history.lock:
            given = list(service.history.answers)
        if format == "json":
            return _json({"answers": given})
        _refuse_unknown(format)
        return _file(exchange.answers_as(format, given, settings))

    @router.post("/v1/requests/lease", tags=["labels"])
    async def lease(body: Lease, by: By) -> Response:
        """Samples for one labeller; nobody else gets them for a while."""
        cards = await run_in_threadpool(
            service.board.lease, f"{by.name}/{body.labeller}", body.count, body.held
        )
        shown = await run_in_threadpool(views.leased, service, cards)
        return _json(shown)

    @router.post("/v1/requests/skip", tags=["labels"])
    async def skip(body: Skip, by: By) -> Response:
        """Show a sample to others, and to this labeller last."""
        service.board.skip(f"{by.name}/{body.labeller}", body.id)
        return _json({"skipped": body.id})

    @router.get("/v1/requests/{number}/image", tags=["labels"], **_content("image/png"))
    async def image(number: int) -> Response:
        """A sample that waits for a label, as a PNG."""
        card = service.board.card(number)
        if card is None:
            raise HTTPException(404, f"sample {number} does not wait for a label")
        return _png(card.sample)

    # What is known

    @router.get("/v1/status", tags=["status"])
    async def status() -> Response:
        """Mode, classes, buffer, labels, what waits."""
        return _json(views.status(service))

    @router.get("/v1/dashboard", tags=["status"])
    async def dashboard(label: int | None = None) -> Response:
        """Everything that the dashboard shows; curves of one class, or of all."""
        return _json(await run_in_threadpool(views.dashboard, service, measures, label))

    @router.get("/v1/verdicts", tags=["status"])
    async def verdicts(
        since: int = 0, limit: Annotated[int, Query(ge=1, le=MAX_LINES)] = MAX_LINES
    ) -> Response:
        """Verdicts on classes after number `since`."""
        return _json({"verdicts": views.after(service, "verdicts", since, limit)})

    @router.get("/v1/verdicts/{number}/examples", tags=["status"], **_content("image/png"))
    async def examples(
        number: int, which: str = "after", place: Annotated[int, Query(ge=0, le=100)] = 0
    ) -> Response:
        """A sample of a drifted class from before or after, as a PNG."""
        found = views.examples(service, number)
        known = {} if found is None else {"before": found.before, "after": found.after}
        some = known.get(which)
        if some is None or place >= len(some):
            raise HTTPException(404, "there is no such example")
        return _png(some[place])

    @router.get("/v1/verdicts/{number}/values", tags=["status"])
    async def example_values(number: int) -> Response:
        """Samples of a drifted class from before and after, as numbers, and as texts if known."""
        found = views.examples(service, number)
        if found is None:
            raise HTTPException(404, "there are no such examples")
        before, after = (views.values_of(some) for some in (found.before, found.after))
        texts = (
            None
            if found.texts is None
            else dict(zip(("before", "after"), found.texts, strict=True))
        )
        return _json({"before": before, "after": after, "texts": texts})

    @router.get("/v1/events", tags=["status"])
    async def events(
        since: int = 0, limit: Annotated[int, Query(ge=1, le=MAX_LINES)] = MAX_LINES
    ) -> Response:
        """Events after number `since`."""
        return _json({"events": views.after(service, "events", since, limit)})

    @router.get("/v1/stream", tags=["status"], **_content("text/event-stream"))
    async def stream(request: Request) -> StreamingResponse:
        """Server-sent events: the status whenever something has changed."""

        async def lines() -> AsyncIterator[bytes]:
            last, quiet = None, 0.0
            while service.ready and not service.is_leaving and not await request.is_disconnected():
                applied = (service.view["applied"], len(service.board))
                if applied != last:
                    last, quiet = applied, 0.0
                    yield b"data: " + as_json(plain(views.status(service))) + b"\n\n"
                elif quiet > 15:
                    quiet = 0.0
                    yield b": still here\n\n"
                await asyncio.sleep(STREAM_SECONDS)
                quiet += STREAM_SECONDS

        return StreamingResponse(lines(), media_type="text/event-stream")

    @router.get("/v1/runs", tags=["status"])
    async def list_runs() -> Response:
        """Runs below the folder of --runs: running, done, failed, with their curves."""
        if runs is None:
            raise HTTPException(404, "this service shows no runs: start it with a folder of runs")
        return _json({"runs": await run_in_threadpool(runs.list)})

    @router.get("/v1/health", tags=["operation"])
    async def health() -> Response:
        """Whether the process answers."""
        return _json({"alive": True})

    @router.get("/v1/ready", tags=["operation"])
    async def ready() -> Response:
        """Whether changes are taken; 503 if not."""
        body = as_json({"ready": service.ready})
        return Response(body, 200 if service.ready else 503, media_type=JSON_TYPE)

    @router.get("/metrics", tags=["operation"], response_class=PlainTextResponse)
    async def metrics() -> Response:
        """Counters and gauges for Prometheus."""
        text = await run_in_threadpool(prometheus, service, measures)
        return Response(text, media_type="text/plain; version=0.0.4")

    # Operation

    async def change(kind: str, body: Change, by: Caller) -> Response:
        future = await run_in_threadpool(service.submit, kind, by=by.name, **body.model_dump())
        return await _outcome(future)

    @router.post("/v1/save", tags=["operation"])
    async def save(body: Change, by: By) -> Response:
        """Save the state now."""
        return await change("save", body, by)

    @router.get("/v1/snapshots", tags=["operation"])
    async def snapshots() -> Response:
        """Saved states to roll back to, oldest first."""
        return _json({"snapshots": await run_in_threadpool(service.snapshots.list)})

    @router.post("/v1/rollback", tags=["operation"])
    async def rollback(body: Rollback, by: By) -> Response:
        """Return to a snapshot; sample ids and spent labels go on."""
        return await change("rollback", body, by)

    @router.post("/v1/mode", tags=["operation"])
    async def mode(body: ModeChange, by: By) -> Response:
        """Choose auto, ask or shadow."""
        return await change("mode", body, by)

    @router.post("/v1/pause", tags=["operation"])
    async def pause(body: Change, by: By) -> Response:
        """Hold all adaptations."""
        return await change("pause", body, by)

    @router.post("/v1/resume", tags=["operation"])
    async def resume(body: Change, by: By) -> Response:
        """Go on in the mode from before the pause."""
        return await change("resume", body, by)

    @router.post("/v1/approve", tags=["operation"])
    async def approve(body: Decision, by: By) -> Response:
        """Adapt to drifted classes that wait for approval."""
        return await change("approve", body, by)

    @router.post("/v1/dismiss", tags=["operation"])
    async def dismiss(body: Decision, by: By) -> Response:
        """Do not adapt to drifted classes that wait for approval."""
        return await change("dismiss", body, by)

    @router.get("/v1/audit", tags=["operation"])
    async def audit(limit: Annotated[int, Query(ge=1, le=MAX_LINES)] = 100) -> Response:
        """The last actions: who, what, why."""
        return _json({"audit": await run_in_threadpool(service.audit.tail, limit)})

    return router


def _refuse_unknown(format: str) -> None:
    if format not in exchange.EXPORTS:
        raise UserError(f"unknown format {format!r:.50} (known: json, csv, jsonl, label-studio)")


def _file(exported: exchange.Export) -> Response:
    content, kind, name = exported
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return Response(content, media_type=kind, headers=headers)


def _png(sample: np.ndarray) -> Response:
    picture = views.png_of(sample)
    if picture is None:
        raise HTTPException(404, "this sample is no image")
    return Response(picture, media_type="image/png")


def _add_error_handlers(app: FastAPI) -> None:
    def answer(code: int, kind: str, message: str) -> JSONResponse:
        headers = {"retry-after": "1"} if code in (429, 503) else None
        return JSONResponse({"error": {"kind": kind, "message": message}}, code, headers)

    @app.exception_handler(HTTPException)
    async def http(_: Request, error: HTTPException) -> JSONResponse:
        return answer(error.status_code, "request", str(error.detail))

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        return answer(422, "request", f"{place}: {first['msg']}")

    @app.exception_handler(UserError)
    async def user(_: Request, error: UserError) -> JSONResponse:
        return answer(409 if isinstance(error, Conflict) else 422, "request", str(error))

    @app.exception_handler(Exception)
    async def unforeseen(_: Request, __: Exception) -> JSONResponse:
        return answer(500, "internal", "internal error; see the log")

    @app.exception_handler(RunFailure)
    async def failure(_: Request, error: RunFailure) -> JSONResponse:
        unavailable = isinstance(error, Unavailable)
        return answer(503 if unavailable else 500, "failure", str(error))
