"""The console over HTTP: the page, the answers to its requests, and its actions.

The first picture waits for all imports of this module. So modules that only a history or a timeline needs are imported when the page asks for one:
pandas and PyArrow's functions take as long to load as the first look at a thousand partitions.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import json
import logging
from collections.abc import Callable
from importlib import resources
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from spark_partq.console.actions import Actions
from spark_partq.console.answers import Json, group_answer, queue_answer, store_answer, told
from spark_partq.console.guard import Guard, may_act
from spark_partq.console.looks import Looks
from spark_partq.console.reader import Reader, beside
from spark_partq.core.errors import (
    GroupNotFoundError,
    InvalidArgumentError,
    PartqError,
    QueueNotFoundError,
)
from spark_partq.core.group.facts import Kind
from spark_partq.core.stored import MOST
from spark_partq.storage.store import Store

MOST_FACTS_A_PAGE = 200
_MOST_TEXT = 200
_MOST_BODY = 64 << 10
_MOST_SECONDS = 366 * 86_400
# If the store answers later than this, the page gets an older look.
_PATIENCE_S = 5.0
_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}

_log = logging.getLogger("spark_partq")


@functools.cache
def page_files() -> dict[str, tuple[bytes, str]]:
    """The files that the browser loads, by name, with their types."""
    folder = resources.files("spark_partq.console") / "page"
    found = {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}
    return {name: (data, _TYPES[name.rpartition(".")[2]]) for name, data in found.items()}


class Console:
    """Answers the page. Its functions are the routes of one application."""

    def __init__(self, store: Store, every_s: float, token: str | None) -> None:
        self._store, self._token = store, token
        self._looks, self._reader = Looks(store, every_s), Reader(store.runtime)
        self._actions = Actions(store)
        self._told = store_answer(self._looks)  # of the last look; only the reader makes it, as this changes `Looks`

    def app(self, host: str) -> Starlette:
        gets = {
            "/": self.index,
            "/page/{name}": self.file,
            "/api/store": self.store,
            "/api/queues/{queue}": self.queue,
            "/api/groups/{group}": self.group,
            "/api/groups/{group}/history": self.history,
            "/api/groups/{group}/timeline": self.timeline,
            "/api/groups/{group}/explain": self.explain,
        }
        routes = [Route(path, function, methods=["GET"]) for path, function in gets.items()]
        return Starlette(
            routes=[*routes, Route("/api/actions", self.act, methods=["POST"])],
            middleware=[Middleware(Guard, host=host), Middleware(GZipMiddleware, minimum_size=1000)],
            exception_handlers={PartqError: _refused, Exception: _failed},
        )

    def stop(self) -> None:
        self._reader.stop()

    # ---- the page
    async def index(self, request: Request) -> Response:
        return _file(request, "index.html")

    async def file(self, request: Request) -> Response:
        return _file(request, request.path_params["name"])

    # ---- what it asks for
    async def store(self, request: Request) -> Response:
        """The store in short. While a look takes long, the answer is from the last look."""
        late = False
        try:
            await asyncio.wait_for(self._reader.do(self._look), _PATIENCE_S)
        except TimeoutError:
            late = True
        more = {"late": late, "actions": self._token is not None, "rebalancing": self._actions.rebalancing}
        return _json(request, self._told | more)

    def _look(self) -> None:
        self._looks.refresh()
        self._told = store_answer(self._looks)

    async def queue(self, request: Request) -> Response:
        return await self._read(request, queue_answer, request.path_params["queue"])

    async def group(self, request: Request) -> Response:
        return await self._read(request, group_answer, request.path_params["group"])

    async def history(self, request: Request) -> Response:
        """Parameters: kind (several), partition, member, text, before, limit."""
        from spark_partq.console.history import history_answer, parsed_partition
        from spark_partq.storage.inspect.fact_reader import FactFilter

        asked = request.query_params
        kinds = asked.getlist("kind")
        unknown = [kind for kind in kinds if kind not in set(Kind)]
        if unknown:
            raise InvalidArgumentError(f"{unknown[0]!r} is no kind of fact; kinds: {', '.join(Kind)}", kind=unknown[0])
        queue, partition = parsed_partition(asked.get("partition", ""))
        texts = {name: asked.get(name, "")[:_MOST_TEXT] for name in ("member", "text")}
        wanted = FactFilter(tuple(kinds), queue, partition, **texts)
        before = _whole(asked.get("before"), "before", MOST)
        most = _whole(asked.get("limit"), "limit", MOST_FACTS_A_PAGE) or 100
        return await self._read(request, history_answer, request.path_params["group"], wanted, before, most)

    async def timeline(self, request: Request) -> Response:
        """Parameters: seconds, first, moved."""
        from spark_partq.console.timeline import timeline_answer

        seconds = _whole(request.query_params.get("seconds"), "seconds", _MOST_SECONDS) or 900
        first = _whole(request.query_params.get("first"), "first", MOST) or 0
        return await self._read(
            request,
            timeline_answer,
            request.path_params["group"],
            float(seconds),
            first,
            "moved" in request.query_params,
        )

    async def explain(self, request: Request) -> Response:
        """Parameter: partition, as QUEUE/NUMBER."""
        from spark_partq.console.history import explain_answer, parsed_partition

        text = request.query_params.get("partition", "")
        queue, partition = parsed_partition(text)
        if queue is None or partition is None:
            raise InvalidArgumentError(f"{text!r} is not QUEUE/NUMBER", partition=text)
        return await self._read(request, explain_answer, request.path_params["group"], queue, partition)

    async def _read(self, request: Request, answer: Callable[..., Json], *arguments: Any) -> Response:
        return _json(request, await self._reader.do(lambda: answer(self._looks, *arguments)))

    # ---- what it may do
    async def act(self, request: Request) -> Response:
        if not may_act(request.headers, self._token):
            why = (
                "this console was started without --actions"
                if self._token is None
                else "the token or the origin is wrong"
            )
            return JSONResponse({"error": {"class": "FORBIDDEN", "message": f"{why}; nothing was changed"}}, 403)
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > _MOST_BODY:
                raise InvalidArgumentError("that is no action of the console: it is too long")
        done = await beside(self._store.runtime, lambda: self._actions.do(body))
        _log.info("done by the console: %s", done["done"])
        return JSONResponse(done)


def _whole(text: str | None, name: str, most: int) -> int | None:
    if text is None:
        return None
    if text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= most:
        return int(text)
    raise InvalidArgumentError(f"{name}={text!r} is no whole number from 0 to {most}", **{name: text})


def _file(request: Request, name: str) -> Response:
    found = page_files().get(name)
    if found is None:
        return Response("there is no such file\n", 404, media_type="text/plain")
    return _tagged(request, found[0], found[1])


def _json(request: Request, answer: Json) -> Response:
    return _tagged(
        request,
        json.dumps(answer, separators=(",", ":"), ensure_ascii=False).encode(errors="replace"),
        "application/json",
    )


def _tagged(request: Request, body: bytes, type_: str) -> Response:
    """The body; or status 304, if the browser has it already: a body that did not change is not sent again."""
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {"etag": tag, "cache-control": "no-cache"}
    if tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(body, media_type=type_, headers=headers)


async def _refused(request: Request, error: Exception) -> Response:
    if not isinstance(error, PartqError):
        raise error
    code = (
        404
        if isinstance(error, GroupNotFoundError | QueueNotFoundError)
        else 400
        if isinstance(error, InvalidArgumentError)
        else 503
    )
    return JSONResponse({"error": told(error)}, code)


async def _failed(request: Request, error: Exception) -> Response:
    """A fault of this program: its log, which uvicorn writes, has the traceback."""
    text = f"the console failed: {type(error).__name__}. Its log says more"
    return JSONResponse({"error": {"class": "INTERNAL", "message": text, "next_step": "Report it."}}, 500)
