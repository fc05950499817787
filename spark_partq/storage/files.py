"""Plain files of a store, for what has to copy them as they are."""

from __future__ import annotations

import contextlib
import os
import re
import uuid
from functools import cached_property
from typing import Any

from pyarrow import fs

from spark_partq.core.errors import CorruptTableError, InvalidArgumentError, StoreUnavailableError
from spark_partq.storage.store import Store

# What was being written when its process died; nobody reads it.
UNFINISHED = "_copying_"
# Also that of buffers: delta-rs's streams take no other than what passes through one.
_CHUNK = 1 << 20
# Settings of the HTTP client, which obstore wants apart.
_CLIENT = {
    "allow_http", "allow_invalid_certificates", "connect_timeout", "http1_only", "http2_only", "proxy_ca_certificate",
    "proxy_excludes", "proxy_url", "timeout", "user_agent",
}  # fmt: skip


class Gone(Exception):
    """The file is not there any more."""


class Taken(Exception):
    """Another file has that name."""


class Files:
    """The files of one store, by their paths in it."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def exists(self, path: str) -> bool:
        return bool(self.store.files.get_file_info(path).type == fs.FileType.File)

    def read(self, path: str) -> bytes:
        """The whole file.

        Raises
        ------
        Gone
        """
        try:
            with self.store.files.open_input_stream(path) as file:
                data: bytes = file.read()
                return data
        except FileNotFoundError:
            raise Gone(path) from None

    def list(self, folder: str) -> dict[str, fs.FileInfo]:
        """The files in a folder, by name; none if there is no such folder."""
        found = self.store.files.get_file_info(fs.FileSelector(folder, allow_not_found=True))
        return {info.base_name: info for info in found if info.type == fs.FileType.File}

    def delete(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.store.files.delete_file(path)

    def put(self, path: str, data: bytes) -> None:
        """Write or replace a file, in one step for all who read it."""
        with self._finished(path) as name, self.store.files.open_output_stream(name, buffer_size=_CHUNK) as file:
            file.write(data)

    def put_new(self, path: str, data: bytes) -> None:
        """Write a file unless there is one of that name; of several at once exactly one does.

        Raises
        ------
        Taken
            If there is one with another content.
        """
        try:
            self._create(path, data)
        except FileExistsError:
            with contextlib.suppress(Gone):
                if self.read(path) == data:
                    return
            raise Taken(path) from None

    def copy(self, source: Files, path: str, size: int) -> None:
        """Take over a file of that size from another store, under the same path.

        Raises
        ------
        Gone
            If the other store does not have it.
        CorruptTableError
            If it has another size.
        """
        copied = 0
        try:
            with source.store.files.open_input_stream(path) as from_, self._finished(path) as name:
                with self.store.files.open_output_stream(name, buffer_size=_CHUNK) as to:
                    while chunk := from_.read(_CHUNK):
                        copied += to.write(chunk)
                if copied != size:
                    raise CorruptTableError(
                        f"{path} in {source.store.uri} has {copied} bytes instead of {size}: it was replaced or cut short. Restore "
                        "it from a backup",
                        path=path,
                    )
        except FileNotFoundError:
            if source.exists(path):
                raise
            raise Gone(path) from None

    @contextlib.contextmanager
    def _finished(self, path: str) -> Any:
        """A name to write under; what is written appears under `path` if nothing is raised."""
        if not self.store.is_local:
            yield path  # an object appears when it is complete
            return
        name = self._unfinished(path)
        try:
            yield name
            os.replace(f"{self.store.uri}/{name}", f"{self.store.uri}/{path}")
        except BaseException:
            self.delete(name)
            raise

    def _unfinished(self, path: str) -> str:
        folder = path.rpartition("/")[0]
        os.makedirs(f"{self.store.uri}/{folder}", exist_ok=True)
        return f"{folder}/{UNFINISHED}{uuid.uuid4().hex}"

    def _create(self, path: str, data: bytes) -> None:
        """Raises FileExistsError."""
        if self.store.is_local:
            name = self._unfinished(path)
            try:
                with self.store.files.open_output_stream(name, buffer_size=_CHUNK) as file:
                    file.write(data)
                os.link(f"{self.store.uri}/{name}", f"{self.store.uri}/{path}")
            finally:
                self.delete(name)
            return
        from obstore.exceptions import AlreadyExistsError, BaseError

        try:
            self._conditional.put(path, data, mode="create")
        except AlreadyExistsError:
            raise FileExistsError(path) from None
        except BaseError as error:
            raise StoreUnavailableError(
                f"{self.store.uri_of(path)} cannot be written: {str(error).splitlines()[0]}", path=path
            ) from error

    @cached_property
    def _conditional(self) -> Any:
        """The same store through obstore, which can put a file only if it is not there."""
        try:
            from obstore.exceptions import UnknownConfigurationKeyError
            from obstore.store import from_url
        except ImportError:
            raise InvalidArgumentError(
                "a replica in an object store needs the package obstore (pip install obstore)", location=self.store.uri
            ) from None
        client: dict[str, Any] = {}
        config: dict[str, Any] = {}
        for name, value in self.store.options.items():
            short = re.sub("^(aws|azure|google)_", "", name.lower())
            (client if short in _CLIENT else config)[short if short in _CLIENT else name] = value
        while True:
            try:
                return from_url(self.store.uri, config=config, client_options=client)  # type: ignore[call-overload]
            except UnknownConfigurationKeyError as error:  # one of delta-rs's own
                named = re.search("'(.+?)'", str(error))
                config = {n: v for n, v in config.items() if named is None or n.lower() != named[1].lower()}
                if named is None:
                    raise
