"""A replica: a folder on some filesystem that holds durable copies, as a handful of operations on objects.

A replica is named by a URL that `pyarrow.fs` understands (`file:///mnt/other/shop`, `s3://bucket/shop?region=...`,
with credentials and an endpoint from the environment or the URL's query as usual), or one whose scheme fsspec
knows. An object is written once, under a name that is never used again, and never renamed, because object stores
cannot rename. On a local filesystem it is flushed to disk before `put` returns, and only its owner may read it, unless
the store that it is a copy of may be read by others. A crash in the middle of a `put` may leave part of an object:
nothing refers to it, because whatever refers to an object is written after it.

A URL may name a wrapper for the filesystem: `PACKAGE.MODULE:FUNCTION+file:///path?...`. The function is called with
the query's options and the filesystem and returns the one to use. `faulty+` is short for the one that tests inject
faults with.
"""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import IO, Protocol
from urllib.parse import parse_qsl, urlsplit, urlunsplit

import pyarrow as pa
import pyarrow.fs as pafs

from slipstream.core.errors import BadReplica, DamagedObject
from slipstream.durability.manifest import Stored
from slipstream.store.disk import modes
from slipstream.trace.flush import flush, flush_folder

WRAPPERS = {"faulty": "slipstream.testing.faults:wrap"}
_CHUNK = 1 << 22
_IN_MEMORY = 1 << 26  # bytes of an object up to which it is fetched without a file

Wrapper = Callable[[dict[str, str], pafs.FileSystem], pafs.FileSystem]


class Objects(Protocol):
    """A replica's objects, wherever they are, as everybody may read them. Any call may fail in any way, and one that
    writes may have taken effect all the same.

    Names are relative, with `/`; `list` gives the objects of a folder and their sizes, and must know of everything that
    was put before. What is not there is a FileNotFoundError.
    """

    @property
    def url(self) -> str: ...
    def get(self, name: str) -> bytes: ...
    def fetch(self, name: str, to: Path) -> str: ...
    def open(self, name: str) -> pa.NativeFile: ...
    def list(self, folder: str) -> dict[str, int]: ...


class WritableObjects(Objects, Protocol):
    """What only an incarnation that is claimed on a replica may do as well: `joining` gives it to nobody else."""

    def put(self, name: str, body: bytes | Path) -> None: ...
    def delete(self, name: str) -> None: ...


class Replica:
    """Objects under one URL, by `pyarrow.fs`. Each call opens what it needs and keeps nothing."""

    def __init__(self, url: str, *, shared: bool = False) -> None:
        self._url = url
        self._files, self._root = open_filesystem(url)
        self._file_mode, self._folder_mode = modes(shared=shared)

    @property
    def url(self) -> str:
        return self._url

    def put(self, name: str, body: bytes | Path) -> None:
        """Write an object, of these bytes or those of a file."""
        path = self._path(name)
        try:
            self._write(path, body)
        except FileNotFoundError:
            self._make_folder(path.rpartition("/")[0])
            self._write(path, body)
        if isinstance(self._files, pafs.LocalFileSystem):
            flush(Path(path))
            flush_folder(Path(path).parent)

    def get(self, name: str) -> bytes:
        """An object's bytes. Raises FileNotFoundError if there is no such object."""
        with self._files.open_input_stream(self._path(name)) as stream:
            body: bytes = stream.read()
        return body

    def fetch(self, name: str, to: Path) -> str:
        """Copy an object to a local file; the SHA-256 of what arrived."""
        digest = hashlib.sha256()
        with self._files.open_input_stream(self._path(name)) as stream, to.open("wb") as file:
            while chunk := stream.read(_CHUNK):
                digest.update(chunk)
                file.write(chunk)
        return digest.hexdigest()

    def open(self, name: str) -> pa.NativeFile:
        """An object to read here and there. Raises FileNotFoundError if there is no such object."""
        return self._files.open_input_file(self._path(name))

    def list(self, folder: str) -> dict[str, int]:
        """The objects of a folder and their sizes. A folder that is not there has none."""
        selector = pafs.FileSelector(self._path(folder), allow_not_found=True)
        try:
            found = self._files.get_file_info(selector)
        except FileNotFoundError:  # all the same, if it is made in the middle of this
            return {}
        return {f"{folder}/{each.base_name}": each.size for each in found if each.type == pafs.FileType.File}

    def delete(self, name: str) -> None:
        """Remove an object, if it is there."""
        with suppress(FileNotFoundError):
            self._files.delete_file(self._path(name))

    def _make_folder(self, path: str) -> None:
        if not isinstance(self._files, pafs.LocalFileSystem):
            self._files.create_dir(path, recursive=True)
            return
        for folder in (self._root, path):
            Path(folder).mkdir(parents=True, exist_ok=True, mode=self._folder_mode)
            flush_folder(Path(folder).parent)

    def _open(self, path: str) -> pa.NativeFile | IO[bytes]:
        if not isinstance(self._files, pafs.LocalFileSystem):
            return self._files.open_output_stream(path)
        return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, self._file_mode), "wb")

    def _write(self, path: str, body: bytes | Path) -> None:
        with self._open(path) as stream:
            if isinstance(body, bytes):
                stream.write(body)
                return
            with body.open("rb") as file:
                while chunk := file.read(_CHUNK):
                    stream.write(chunk)

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"


def checked_body(objects: Objects, stored: Stored, spool: Path) -> bytes | Path:
    """An object's contents, compared with what they must be: in memory, or in a new file of `spool` if it is large."""
    where = shown(objects.url)
    try:
        if stored.size <= _IN_MEMORY:
            read = objects.get(stored.name)
            body: bytes | Path = read
            size, digest = len(read), hashlib.sha256(read).hexdigest()
        else:
            spool.mkdir(parents=True, exist_ok=True, mode=0o700)
            body = spool / f"{uuid.uuid4().hex[:12]}-{stored.name.rpartition('/')[2]}"
            digest = objects.fetch(stored.name, body)
            size = body.stat().st_size
    except FileNotFoundError:
        raise DamagedObject(where, stored.name, "it is missing") from None
    if size != stored.size:
        raise DamagedObject(where, stored.name, f"it has {size} bytes and was written with {stored.size}")
    if digest != stored.sha256:
        raise DamagedObject(where, stored.name, "its contents are not those that were written")
    return body


def check_apart(store: Path, urls: Iterable[str]) -> None:
    """Refuse what cannot be a replica of a store: no address at all, or a folder that is lost with the store."""
    root = store.absolute()
    for url in urls:
        if "://" not in url:
            raise BadReplica(url, "it has no scheme")
        folder = _local_folder(url)
        if folder is not None and (root == folder or root in folder.parents):
            raise BadReplica(shown(url), f"it is in the store '{store}', and would be lost with it")


def own_folders(store: Path, urls: Iterable[str]) -> set[Path]:
    """The folders of this machine that a store and its replicas are."""
    return {
        store.resolve(),
        *(folder.resolve() for url in urls if (folder := _local_folder(url)) is not None),
    }


def _local_folder(url: str) -> Path | None:
    """The folder of this machine that a URL names, if it does."""
    parts = urlsplit(_unwrapped(url)[1])
    return Path(parts.path) if parts.scheme == "file" else None


def open_filesystem(url: str) -> tuple[pafs.FileSystem, str]:
    """The filesystem that a URL names, and the path on it."""
    wrapper, plain = _unwrapped(url)
    if not wrapper:
        return _plain(url, url)
    parts = urlsplit(plain)
    options = dict(parse_qsl(parts.query))
    files, path = _plain(urlunsplit(parts._replace(query="")), url)
    if wrapper not in WRAPPERS:
        raise BadReplica(shown(url), f"there is no filesystem wrapper '{wrapper}'")
    module, _, function = WRAPPERS[wrapper].partition(":")
    wrap: Wrapper = getattr(import_module(module), function)
    return wrap(options, files), path


def _unwrapped(url: str) -> tuple[str, str]:
    """The wrapper that a URL names, if it does, and the URL without it."""
    wrapper, plus, plain = url.partition("+")
    return (wrapper, plain) if plus and "/" not in wrapper else ("", url)


def _plain(url: str, given: str) -> tuple[pafs.FileSystem, str]:
    if "://" not in url:
        raise BadReplica(shown(given), "it has no scheme")
    try:
        files, path = pafs.FileSystem.from_uri(url)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as unknown:
        try:
            import fsspec

            handler, path = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError) as cause:
            raise BadReplica(shown(given), f"{unknown}".splitlines()[0]) from cause
        files = pafs.PyFileSystem(pafs.FSSpecHandler(handler))
    return files, path.rstrip("/")


def shown(url: str) -> str:
    """A URL without the secrets that it may carry; anything else as it is."""
    if "://" not in url:
        return url
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
