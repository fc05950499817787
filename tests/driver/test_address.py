"""Where a driver listens: a folder that only this user can use, which nobody else can have made."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import stat
import tempfile
from collections.abc import Iterator
from logging.handlers import BufferingHandler
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from spark_partq.spark.address import Address, listen
from spark_partq.spark.channel import DriverClient
from tests import queries
from tests.driver.ends import GREETING, Handler, own_driver
from tests.helpers import two_partitions
from tests.storage.files.processes import CONTEXT, NOBODY

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may make a file somebody else's")


@pytest.fixture
def folder() -> Iterator[Path]:
    """One with a path that a socket can have."""
    with tempfile.TemporaryDirectory(prefix="pt", dir="/tmp") as made:
        yield Path(made)


@pytest.fixture
def short(folder: Path) -> Iterator[Path]:
    """The same, for temporary files."""
    with mock.patch.object(tempfile, "tempdir", str(folder)):
        yield folder


def mode(path: str) -> int:
    return stat.S_IMODE(os.lstat(path).st_mode)


def test_a_driver_that_stands_still_keeps_nobody_waiting(short: Path) -> None:
    """Nobody takes what waits for it, so there comes a moment at which it takes nobody."""
    address, server = listen()
    waiting = []
    with contextlib.suppress(BlockingIOError):
        for _ in range(10_000):
            client = socket.socket(socket.AF_UNIX)
            client.setblocking(False)
            waiting.append(client)
            client.connect(address.path)
    _, second = listen()
    assert os.path.exists(address.path)
    for one in (*waiting, server, second):
        one.close()


def test_the_folder_is_of_this_user_alone(short: Path) -> None:
    address, server = listen()
    assert mode(address.folder) == 0o700 and os.path.dirname(address.folder) == str(short)
    assert os.listdir(address.folder) == ["socket"]
    client = address.connect()
    accepted, _ = server.accept()
    for end in (client, accepted, server):
        end.close()
    address.remove()
    assert os.listdir(short) == []


def test_a_permissive_umask_changes_nothing(short: Path) -> None:
    before = os.umask(0)
    try:
        address, server = listen()
    finally:
        os.umask(before)
    assert mode(address.folder) == 0o700
    server.close()


def test_two_drivers_do_not_meet(short: Path) -> None:
    """Each has a name and a token of its own, whatever their process ids: containers may share both these and the folder."""
    with mock.patch.object(os, "getpid", return_value=7):
        (one, first), (other, second) = listen(), listen()
    assert one.folder != other.folder and one.token != other.token
    first.settimeout(10)
    second.settimeout(0.01)
    with one.connect():
        first.accept()[0].close()
        with pytest.raises(TimeoutError):
            second.accept()
    first.close()
    second.close()


def test_the_token_is_not_shown() -> None:
    assert "secret" not in repr(Address("/folder", "secret"))


def assert_refused(address: Address) -> None:
    with pytest.raises(PermissionError, match="no folder of this user alone"):
        address.connect()


@pytest.mark.parametrize("bits", [0o777, 0o770, 0o701])
def test_a_folder_that_others_can_use_is_refused(short: Path, bits: int) -> None:
    address, server = listen()
    os.chmod(address.folder, bits)
    assert_refused(address)
    server.close()


@needs_root
def test_a_folder_of_somebody_else_is_refused(short: Path) -> None:
    """A driver has ended, and somebody else makes its folder again to be told the token."""
    address, server = listen()
    os.chown(address.folder, 2002, 2002)
    assert_refused(address)
    server.close()


def test_a_link_in_its_place_is_refused(short: Path) -> None:
    address, server = listen()
    os.rename(address.folder, short / "elsewhere")
    os.symlink(short / "elsewhere", address.folder)
    assert_refused(address)
    server.close()


def test_what_a_killed_driver_left_is_removed(short: Path) -> None:
    dead, server = listen()
    server.close()
    living, served = listen()
    assert os.listdir(short) == [os.path.basename(living.folder)] and not os.path.exists(dead.folder)
    again, other = listen()
    assert os.path.exists(living.path) and os.path.exists(again.path)
    served.close()
    other.close()


@needs_root
def test_what_others_left_stays(short: Path) -> None:
    """The folder of another user looks like one of ours, and the sockets of other programs lie in folders of other names."""
    dead, server = listen()
    os.chown(dead.folder, 2002, 2002)
    server.close()
    foreign = short / "other.sock"
    with socket.socket(socket.AF_UNIX) as ended:
        ended.bind(str(foreign))
    _, served = listen()
    assert os.path.exists(dead.path) and foreign.exists()
    served.close()


# ---- a driver that cannot listen
def long_path(folder: Path) -> Path:
    made = folder / ("x" * 100)
    made.mkdir()
    return made


def missing(folder: Path) -> Path:
    return folder / "missing"


def a_file(folder: Path) -> Path:
    made = folder / "file"
    made.touch()
    return made


@pytest.mark.parametrize("place", [long_path, missing, a_file])
def test_a_driver_that_cannot_listen_warns_once(short: Path, place: Any, caplog: pytest.LogCaptureFixture) -> None:
    folder = place(short)
    with caplog.at_level(logging.WARNING), own_driver(folder) as driver:
        assert driver.address is None
        driver.add_listener("g", object())
        driver.finished({"group": "g", "instance": "i"})
    (record,) = caplog.records
    assert "The queries work without" in record.message and "TMPDIR" in record.message
    assert not folder.is_dir() or list(folder.iterdir()) == []


def consumed(folder: Path, name: str) -> tuple[list[str], list[int]]:
    """What is logged where temporary files may not be made, and the messages that a consumer is given there."""
    logged, log = BufferingHandler(100), logging.getLogger("spark_partq")
    log.addHandler(logged)
    with own_driver(folder / "read-only") as driver, mock.patch.object(queries, "driver", return_value=driver):
        batches = queries.consume(str(folder / name), folder / f"checkpoint-{name}")
    log.removeHandler(logged)
    return [record.getMessage() for record in logged.buffer], sorted(row["v"] for rows in batches for row in rows)


def consumed_as_nobody(folder: Path) -> tuple[list[str], list[int]]:
    consumed(folder, "spare")  # so that all is loaded, also what this user may not read later
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    return consumed(folder, "store")


def test_a_driver_that_may_not_write_warns_once_and_its_consumer_goes_on(folder: Path) -> None:
    for name in ("spare", "store"):
        two_partitions(str(folder / name), 3)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o777)
    (folder / "read-only").mkdir(mode=0o555)
    with CONTEXT.Pool(1) as pool:
        warnings, messages = pool.apply(consumed_as_nobody, (folder,))
    (warning,) = warnings
    assert "Permission denied" in warning and "The queries work without" in warning and "TMPDIR" in warning
    assert messages == [0, 0, 1, 1, 2, 2]
    assert not list((folder / "read-only").iterdir())


def test_a_planner_whose_driver_is_gone_warns_once(short: Path, caplog: pytest.LogCaptureFixture) -> None:
    address, server = listen()
    server.close()
    address.remove()
    with caplog.at_level(logging.WARNING):
        client = DriverClient(address, GREETING, Handler())
        assert not client.connected and client.request({"joins": True}) == {}
    (record,) = caplog.records
    assert "the driver cannot be reached" in record.message and address.token not in record.message
