"""Why a job of Spark's failed, where it was not for a row.

Python tasks tell of their own troubles under the engine's token (`dataflow.telling`). A disk that takes nothing more
may also be met by Spark itself, where it shuffles: then an exception of Java's input and output is among the causes of
the one that the job ended with. Its class says so, which no row can choose. What else a text says is never believed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException

from slipstream.dataflow.telling import trouble_told
from slipstream.epoch.job import JobTroubled
from slipstream.spark.jvm import text_of

_INPUT_OUTPUT = ("java.io.", "java.nio.file.")
_NO_ROOM = ("No space left on device", "Disk quota exceeded", "Read-only file system")
_DEEPEST = 20  # causes of causes


def trouble_of(error: Exception, token: str) -> JobTroubled | None:
    """The trouble that a failed job of an engine with this token was in; None where it failed for its rows, or for what
    nobody knows.
    """
    causes = list(_causes(error))
    for text in (text_of(error), *(message for _, message in causes)):
        found = trouble_told(text, token)
        if found is not None:
            return JobTroubled(*found)
    for kind, message in causes:
        if kind.startswith(_INPUT_OUTPUT) and any(words in message for words in _NO_ROOM):
            return JobTroubled("hindered", f"{kind}: {message}")
    return None


def _causes(error: Exception) -> Iterator[tuple[str, str]]:
    """The class and the message of each of the JVM's exceptions behind an error, outermost first; none where there is
    no JVM any more.
    """
    thrown: Any = None
    if isinstance(error, Py4JJavaError):
        thrown = error.java_exception
    elif isinstance(error, CapturedException):
        thrown = error._origin
    try:
        for _ in range(_DEEPEST):
            if thrown is None:
                return
            yield thrown.getClass().getName(), thrown.getMessage() or ""
            thrown = thrown.getCause()
    except (Py4JError, ConnectionError):
        return
