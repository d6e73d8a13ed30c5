"""Names in the JVM, each looked up once.

To py4j every part of a dotted name is a question to the JVM, which looks for a class of that name in each of Spark's
almost three hundred jars before it answers that it is a package: a millisecond for `java.util.ArrayList`, and an epoch
says such names a hundred times.
"""

from __future__ import annotations

import re
from typing import Any

from py4j.java_gateway import JavaClass, JavaPackage
from py4j.protocol import Py4JError


def text_of(error: BaseException) -> str:
    """What an error says. That of a JVM's exception is asked of the JVM, which may be gone: then it is its name."""
    try:
        return _plain(str(error))
    except (Py4JError, ConnectionError):
        return type(error).__name__


_FRAME = re.compile(r"\t+(at \S.*|\.\.\. \d+ more)$")
_WORKER = re.compile(
    r"An exception was thrown from the Python worker:\s+Traceback \(most recent call last\):\n"
    r"(?P<frames>(?:\s.*\n)*)(?P<error>\S.*)",
    re.DOTALL,
)


def _plain(text: str) -> str:
    """A text without the stacks of Java's exceptions, and what a Python worker raised before where it did."""
    lines = [line for line in text.splitlines() if not _FRAME.match(line) and line != "Driver stacktrace:"]
    plain = "\n".join(lines)
    found = _WORKER.fullmatch(plain)
    return plain if found is None else f"{found['error']}\n{found['frames'].rstrip()}"


class Remembered:
    """A package or a class, and what was found in it."""

    def __init__(self, found: Any) -> None:
        self._found = found

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._found, name)
        if isinstance(member, JavaPackage | JavaClass):
            member = Remembered(member)
        setattr(self, name, member)
        return member

    def __call__(self, *arguments: Any) -> Any:
        """A new object of the class."""
        return self._found(*arguments)
