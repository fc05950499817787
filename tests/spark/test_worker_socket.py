"""What a worker of Spark sends last does not wait."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from spark_partq.spark import worker_socket


@pytest.fixture(autouse=True)
def _not_done_yet() -> Iterator[None]:
    worker_socket.send_at_once.cache_clear()
    yield
    worker_socket.send_at_once.cache_clear()


def test_all_tcp_sockets_of_the_process() -> None:
    """Also one of which only a file is left, as a worker's; and what is no such socket is let be."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as opened:
        before = set(os.listdir(worker_socket._OPEN))
        with open(os.dup(opened.fileno()), "wb") as file, socket.socketpair()[0]:
            assert not opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            worker_socket.send_at_once()
            assert opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            file.write(b"still open")
        assert set(os.listdir(worker_socket._OPEN)) <= before


def test_elsewhere_than_on_linux(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setattr(worker_socket, "_OPEN", f"{tmp_path}/none")
    worker_socket.send_at_once()
