"""Where a driver listens for its planners: a local socket in a folder that the driver makes for itself, and a token.

The name of the folder is new for each driver and cannot be guessed, so nobody has made it before, and two containers that share a folder
for temporary files do not meet. Spark carries the address to the planners of this driver's queries, and to no other, inside the source
that `register` gives it.
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
            If it does not listen any more, or the folder is not one that only this user can use.
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
        os.rename(starting, address.path)  # a socket without a listener would pass for that of a killed process
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
    """Remove what this user's drivers left that were killed."""
    with contextlib.suppress(OSError):
        for name in os.listdir(parent):
            if name.startswith(_PREFIX):
                _sweep_one(Address(os.path.join(parent, name), ""))


def _sweep_one(address: Address) -> None:
    client = socket.socket(socket.AF_UNIX)
    client.setblocking(False)  # one whose driver stands still may not answer
    try:
        _check_folder(address.folder)
        client.connect(address.path)
    except OSError as error:
        if error.errno == errno.ECONNREFUSED:
            address.remove()
    finally:
        client.close()
