"""Listens for browsers, in threads of this process."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections.abc import Iterator

import uvicorn

from spark_partq.console.app import Console
from spark_partq.core.errors import InvalidArgumentError
from spark_partq.storage.store import Store

# When the console ends, it waits at most this long for answers that are under way.
_GRACE_S = 1.0
_MOST_AT_ONCE = 200


@contextlib.contextmanager
def serving(store: Store, host: str, port: int, every_s: float = 2.0, token: str | None = None) -> Iterator[int]:
    """Answer browsers; yields the port, which is any free port if 0 is asked for.

    Parameters
    ----------
    every_s : float
        The store is read at most once in this number of seconds, however many browsers ask.
    token : str, optional
        With this token a browser may do what `actions` lists.

    Raises
    ------
    InvalidArgumentError
        If this process cannot listen there.
    """
    with contextlib.closing(_listening(host, port)) as listening:
        console = Console(store, every_s, token)
        logging.getLogger("uvicorn").setLevel(logging.ERROR)
        config = uvicorn.Config(
            console.app(host), log_config=None, access_log=False, lifespan="off", server_header=False, ws="none",
            limit_concurrency=_MOST_AT_ONCE, timeout_graceful_shutdown=1,
        )  # fmt: skip
        server = uvicorn.Server(config)
        thread = threading.Thread(
            target=lambda: server.run(sockets=[listening]), name="partq-console-http", daemon=True
        )
        thread.start()
        try:
            yield int(listening.getsockname()[1])
        finally:
            server.should_exit = True
            thread.join(_GRACE_S)
            server.force_exit = True
            thread.join(_GRACE_S)
            console.stop()


def _listening(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        raise InvalidArgumentError(
            f"this process cannot listen on {host}, port {port} ({error.strerror or error}): another program does, or the address is not "
            "this machine's. Choose another with --port and --host",
            host=host,
            port=port,
        ) from error
