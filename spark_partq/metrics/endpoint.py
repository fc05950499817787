"""An HTTP endpoint with the metrics of a store, in the text format that the scraper asks for: Prometheus or OpenMetrics."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, start_http_server

from spark_partq.core.errors import InvalidArgumentError
from spark_partq.metrics.collector import StoreCollector
from spark_partq.storage.store import Store


@contextlib.contextmanager
def serving(store: Store, host: str, port: int) -> Iterator[int]:
    """Answer scrapes in threads of this process; yields the port, which is any free port if 0 is asked for.

    Raises
    ------
    InvalidArgumentError
        If this process cannot listen there.
    """
    registry = CollectorRegistry()
    registry.register(StoreCollector(store))
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        raise InvalidArgumentError(
            f"this process cannot listen on {host}, port {port} ({error.strerror or error}): another program does, or the address is not "
            "this machine's. Choose another with --port and --host",
            host=host,
            port=port,
        ) from error
    try:
        yield int(server.server_port)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
