"""PySpark's daemon of Python workers, loaded from the installed package.

Spark puts `pyspark.zip` in front of every worker's path. Modules in a zip have no compiled form beside them,
so each worker compiles PySpark anew when it starts: most of a second of a core. Where PySpark is installed as
a package too, that copy is the same and is used. Set as `spark.python.daemon.module`; Spark runs it with
`python -m` and the worker's module as argument.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from importlib.machinery import PathFinder
from typing import Any

_ZIPS = ("pyspark.zip", "-src.zip")


def without_zips(path: list[str]) -> list[str]:
    """The path without Spark's zips, if PySpark can be found without them."""
    rest = [entry for entry in path if not entry.endswith(_ZIPS)]
    return rest if PathFinder.find_spec("pyspark", rest) and PathFinder.find_spec("py4j", rest) else path


def quietly(worker: Callable[..., int]) -> Callable[..., int]:
    """A worker that ends without a word when Spark has hung up: its task was cancelled, or had rows enough."""

    def run(*arguments: Any) -> int:
        try:
            return worker(*arguments)
        except BrokenPipeError:
            return 1

    return run


class Tracebacks:
    """What the daemon takes for the module `traceback`: it has nothing to say where Spark has hung up before a
    worker could tell that it is there, as happens at the end of a program.
    """

    @staticmethod
    def print_exc() -> None:
        if not isinstance(sys.exception(), BrokenPipeError):
            traceback.print_exc()

    format_exc = staticmethod(traceback.format_exc)


if __name__ == "__main__":
    sys.path[:] = without_zips(sys.path)
    from pyspark import daemon

    daemon.worker = quietly(daemon.worker)
    vars(daemon)["traceback"] = Tracebacks
    with suppress(BrokenPipeError):  # Spark ended while this was starting
        daemon.manager()
