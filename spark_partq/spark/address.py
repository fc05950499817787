"""Where a driver listens for its planners: a local socket in a folder that the driver makes for itself. A planner must know a token.

The name of the folder is new for each driver and cannot be guessed. So no other process has made the folder before, and two containers
that share a folder for temporary files do not use the same one. The address is inside the source that `register` gives to Spark. Spark
carries it to the planners of this driver's queries, and to no others.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import socket
import stat
import tempfile
from dataclasses import dataclass, field

_PREFIX = "partq-driver-"
_SOCKET = "socket"


@dataclass(frozen=True)
class Address:
    """The folder of a driver's socket, and what a planner must say first."""

    folder: str
    token: str = field(repr=False)

    @property
    def path(self) -> str:
        return os.path.join(self.folder, _SOCKET)

    def connect(self) -> socket.socket:
        """A connection to the driver.

        Raises
        ------
        OSError
            If the driver does not listen any more, or users other than this one can use the folder.
        """
        _check_folder(self.folder)
        return _connect(self.path)

    def remove(self) -> None:
        """Remove the socket and its folder."""
        for remove, path in ((os.unlink, self.path), (os.rmdir, self.folder)):
            with contextlib.suppress(OSError):
                remove(path)


def listen() -> tuple[Address, socket.socket]:
    """A new address, and the socket that listens there.

    Raises
    ------
    OSError
        If there is no folder for temporary files that can be written, or its path is too long for a socket.
    """
    _sweep(tempfile.gettempdir())
    address = Address(tempfile.mkdtemp(prefix=_PREFIX), secrets.token_hex(16))
    server = socket.socket(socket.AF_UNIX)
    starting = f"{address.path}.new"
    try:
        _check_folder(address.folder)
        server.bind(starting)
        server.listen()
        os.rename(starting, address.path)  # a socket that does not listen yet would look like one of a killed process
    except OSError:
        server.close()
        with contextlib.suppress(OSError):
            os.unlink(starting)
        address.remove()
        raise
    return address, server


def _check_folder(folder: str) -> None:
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise PermissionError(f"{folder} is no folder of this user alone")


def _connect(path: str) -> socket.socket:
    client = socket.socket(socket.AF_UNIX)
    try:
        client.connect(path)
    except OSError:
        client.close()
        raise
    return client


def _sweep(parent: str) -> None:
    """Remove the sockets and folders of this user's drivers that were killed."""
    with contextlib.suppress(OSError):
        for name in os.listdir(parent):
            if name.startswith(_PREFIX):
                _sweep_one(Address(os.path.join(parent, name), ""))


def _sweep_one(address: Address) -> None:
    client = socket.socket(socket.AF_UNIX)
    client.setblocking(False)  # a driver that stands still may not answer
    try:
        _check_folder(address.folder)
        client.connect(address.path)
    except OSError as error:
        if error.errno == errno.ECONNREFUSED:
            address.remove()
    finally:
        client.close()
