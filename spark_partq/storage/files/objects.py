"""A store in an object store (S3, Azure, Google Cloud), through obstore."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import obstore
import pyarrow as pa
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    GenericError,
    NotFoundError,
    PermissionDeniedError,
    UnauthenticatedError,
    UnknownConfigurationKeyError,
)
from obstore.store import from_url

from spark_partq.core.errors import NotPermittedError, StoreUnavailableError
from spark_partq.storage.files.asking import asked_again, tells_of_connection
from spark_partq.storage.files.credentials import redacted
from spark_partq.storage.files.port import FileAlreadyExists, FileInfo, FileMissing, check_size

# Settings of the HTTP client, which obstore wants apart.
_CLIENT = {
    "allow_http", "allow_invalid_certificates", "connect_timeout", "http1_only", "http2_only", "proxy_ca_certificate",
    "proxy_excludes", "proxy_url", "timeout", "user_agent",
}  # fmt: skip
# Codes of S3 that come with a status of another meaning: for one deletion among several, and for credentials that are over.
_REFUSED = re.compile("AccessDenied|<Code>(ExpiredToken|InvalidToken|TokenRefreshRequired)</Code>")
_COLOUR = re.compile("\x1b\\[[0-9;]*m")
# Of a file so much comes with its size; most files of small micro-batches are shorter.
_FIRST_BYTES = 1 << 20
_NOT_SO_LONG = re.compile(r"status code: 416\b")

T = TypeVar("T")


class ObjectFiles:
    """Objects below a URI. A new object is put under the condition that there is none of its name.

    The client library asks again where the store answers with 5xx or a connection cannot be made. Where an answer ends in its middle, or a write
    is not answered in time, it gives up at once, so this asks again. A put under a condition then finds its own object, as it does
    when the client library has put it twice.

    Parameters
    ----------
    options : dict
        Named as obstore names them (credentials, endpoint…); others have no effect.
    """

    is_local = False

    def __init__(self, uri: str, options: Mapping[str, str]) -> None:
        self._uri, self._options = uri, options
        self._store = _connected(uri, options)

    def put_if_absent(self, path: str, data: bytes) -> None:
        self._asked(path, "written", lambda: self._store.put(path, data, mode="create"))

    def put(self, path: str, data: bytes) -> None:
        self._asked(path, "written", lambda: self._store.put(path, data))

    def read(self, path: str, most: int | None = None) -> bytes:
        def read() -> bytes:
            found = self._store.get(path)
            check_size(path, found.meta["size"], most)
            return bytes(found.bytes())

        return self._asked(path, "read", read)

    def info(self, path: str) -> FileInfo | None:
        try:
            return _info(self._asked(path, "read", lambda: self._store.head(path)))
        except FileMissing:
            return None

    def list_files(self, folder: str, after: str = "", prefix: str = "") -> list[FileInfo]:
        base = f"{folder}/" if folder else ""

        def below() -> list[Any]:
            if not after:
                return list(self._store.list_with_delimiter(folder)["objects"])
            found: list[Any] = []
            for page in self._store.list(folder, offset=base + after):
                found += page
                last = page[-1]["path"]
                if last > base + prefix and not last.startswith(base + prefix):
                    break  # pages come by name, and names with the prefix come before this one
            return found

        depth = folder.count("/") + 1 if folder else 0
        there = [_info(meta) for meta in self._asked(folder, "read", below) if meta["path"].count("/") == depth]
        return sorted(info for info in there if info.name.startswith(prefix))

    def list_folders(self, folder: str) -> list[str]:
        found = self._asked(folder, "read", lambda: self._store.list_with_delimiter(folder or None))
        return sorted(prefix.rpartition("/")[2] for prefix in found["common_prefixes"])

    def make_folder(self, folder: str) -> None:
        pass

    def delete(self, path: str) -> None:
        with contextlib.suppress(FileMissing):
            self._asked(path, "written", lambda: self._store.delete(path))

    def delete_folder(self, folder: str) -> None:
        def delete() -> None:
            for page in self._store.list(folder):
                paths = [meta["path"] for meta in page]
                try:
                    self._store.delete(paths)
                except (NotFoundError, FileNotFoundError):  # others delete the same
                    for path in paths:
                        self.delete(path)

        self._asked(folder, "written", delete)

    def open_input(self, path: str) -> pa.NativeFile:
        def first() -> tuple[bytes, int]:
            try:
                found = self._store.get(path, options={"range": (0, _FIRST_BYTES)})
            except GenericError as error:
                if _NOT_SO_LONG.search(str(error)):  # it is empty
                    return b"", 0
                raise
            return bytes(found.bytes()), found.meta["size"]

        return pa.PythonFile(_ObjectInput(self, path, *self._asked(path, "read", first)), mode="r")

    def open_output(self, path: str) -> _ObjectOutput:
        with self._explained(path, "written"):
            return _ObjectOutput(self, path, obstore.open_writer(self._store, path))

    def force_writes(self, *, seen: bool) -> None:
        pass

    def force(self, path: str) -> None:
        pass

    def _asked(self, path: str, done: str, ask: Callable[[], T]) -> T:
        """What the store says; errors as `_explained` tells them."""
        with self._explained(path, done):
            return asked_again(ask, _is_broken)

    @contextlib.contextmanager
    def _explained(self, path: str, done: str) -> Iterator[None]:
        """Errors of the client library as those of this package."""
        try:
            yield
        except AlreadyExistsError:
            raise FileAlreadyExists(path) from None
        except (BaseError, OSError) as error:
            text = redacted(_COLOUR.sub("", str(error)), self._options) or type(error).__name__
            code = re.search("<Code>(.*?)</Code>", text)
            missing = isinstance(error, (NotFoundError, FileNotFoundError))
            if missing and (code is None or code[1] != "NoSuchBucket"):
                raise FileMissing(path) from None
            reason = text.splitlines()[0].partition(": <?xml")[0] + (f" ({code[1]})" if code else "")
            what = f"{self._uri}/{path} cannot be {done}: {reason}"
            refused = isinstance(error, (PermissionDeniedError, UnauthenticatedError, PermissionError))
            if refused or _REFUSED.search(text):
                raise NotPermittedError(
                    f"{what}. Check the credentials in the storage options, and what they permit", path=path
                ) from None
            if "builder error" in text and " http://" in text:  # what the client says where it may not ask
                raise StoreUnavailableError(
                    f"{self._uri}/{path} cannot be {done}: its endpoint begins with http://, so nothing would be encrypted. To allow "
                    "that, give the storage option allow_http='true' or set AWS_ALLOW_HTTP=true",
                    path=path,
                ) from None
            raise StoreUnavailableError(
                f"{what}. Check the path, the network and the storage options", path=path
            ) from None  # the text of `error` may hold a secret
        except BaseException as error:
            if not _is_panic(error):
                raise
            raise _unreachable(self._uri, self._options, error) from None


def _connected(uri: str, options: Mapping[str, str]) -> Any:
    client: dict[str, Any] = {}
    config: dict[str, Any] = {}
    for name, value in options.items():
        short = re.sub("^(aws|azure|google)_", "", name.lower())
        (client if short in _CLIENT else config)[short if short in _CLIENT else name] = value
    while True:
        try:
            return from_url(uri, config=config, client_options=client or None)  # type: ignore[call-overload]
        except UnknownConfigurationKeyError as error:
            named = re.search("key: '(.+)' is not", str(error))
            left = {n: v for n, v in config.items() if named is None or n.lower() != named[1].lower()}
            if len(left) == len(config):
                raise _unreachable(uri, options, error) from None
            config = left
        except BaseException as error:
            if not (isinstance(error, (BaseError, ValueError)) or _is_panic(error)):
                raise
            raise _unreachable(uri, options, error) from None


def _is_panic(error: BaseException) -> bool:
    """How the client library ends where it cannot use an option, as an endpoint without ``http``. The class has no name to import."""
    return type(error).__name__ == "PanicException"


def _unreachable(uri: str, options: Mapping[str, str], error: BaseException) -> StoreUnavailableError:
    reason = redacted(next(iter(str(error).splitlines()), type(error).__name__), options)
    return StoreUnavailableError(f"{uri} cannot be reached: {reason}. Check the URI and the storage options", path=uri)


def _is_broken(error: Exception) -> bool:
    return isinstance(error, GenericError) and tells_of_connection(str(error).partition("\n")[0])


def _info(meta: Any) -> FileInfo:
    modified_ns = round(meta["last_modified"].timestamp() * 1e6) * 1000
    return FileInfo(meta["path"].rpartition("/")[2], int(meta["size"]), modified_ns, modified_ns)


class _ObjectInput(io.RawIOBase):
    """Reads ranges of an object, each with one request, unless it lies in what is there of its beginning."""

    def __init__(self, files: ObjectFiles, path: str, first: bytes, size: int) -> None:
        self._files, self._path, self._first, self._size, self._at = files, path, first, size, 0

    def read(self, size: int = -1) -> bytes:
        end = self._size if size < 0 else min(self._size, self._at + size)
        if end <= self._at:
            return b""
        store, path, start = self._files._store, self._path, self._at
        self._at = end
        if end <= len(self._first):
            return self._first[start:end]
        return self._files._asked(path, "read", lambda: bytes(obstore.get_range(store, path, start=start, end=end)))

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence] + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True


class _ObjectOutput:
    def __init__(self, files: ObjectFiles, path: str, writer: Any) -> None:
        self._files, self._path = files, path
        self._upload = _Upload(files, path, writer)
        self.sink = pa.PythonFile(self._upload, mode="w")

    def close(self) -> int:
        with self._files._explained(self._path, "written"):
            self.sink.flush()
            self._upload.finish()
        return self._upload.tell()

    def discard(self) -> None:
        """What was uploaded so far has no name, and the object store drops it as it is set up to."""


class _Upload(io.RawIOBase):
    """Counts what is written; an upload that is not finished leaves no object."""

    def __init__(self, files: ObjectFiles, path: str, writer: Any) -> None:
        self._files, self._path, self._writer, self._written = files, path, writer, 0

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        with self._files._explained(self._path, "written"):
            self._writer.write(view)
        self._written += len(view)
        return len(view)

    def tell(self) -> int:
        return self._written

    def writable(self) -> bool:
        return True

    def finish(self) -> None:
        self._writer.close()
