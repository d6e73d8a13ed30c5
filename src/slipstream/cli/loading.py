"""A user's file, run to get the one app that it declares.

The file runs much as `python FILE.py` would run it: its folder is on the path, the working directory
stays. But its `__name__` is "slipstream_app", so that what it keeps under `if __name__ == "__main__":`
does not run; and functions that it defines travel to Spark's workers by value, as those of `__main__`
do, for no worker could import them by that name.

It runs in a thread that is not the main one, which is the command's, to take signals: a file cannot set
handlers for them.

The command runs the app itself. A file that does so while it is being loaded would never come back, so
that is refused.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from py4j.protocol import Py4JError
from pyspark import cloudpickle
from pyspark.errors import PySparkRuntimeError

from slipstream.app import App, standing_by
from slipstream.core.errors import AppRunsItself, LoadFailed, NoApp, SeveralApps, SlipstreamError, StoreInUse
from slipstream.core.settings import Starting, starting_with

MODULE = "slipstream_app"


def load_app(
    path: Path, wanted: Starting | None = None, *, standby: bool = False, looking: bool = False
) -> App:
    """Run a file and return its app, started as is wanted; it leaves its store alone if it is to stand by, or is only
    looked at.
    """
    module = ModuleType(MODULE)
    module.__file__ = str(path.resolve())
    sys.modules[MODULE] = module
    sys.path.insert(0, str(path.resolve().parent))
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    alone = standing_by(looking=looking) if standby or looking else nullcontext()
    with _only_declaring(), starting_with(wanted or Starting()), alone:
        try:
            code = compile(
                path.read_bytes(), module.__file__, "exec", dont_inherit=True
            )  # of our own __future__
            exec(code, module.__dict__)
        except Exception as error:
            raise LoadFailed(str(path), _line(error, module.__file__), _said(error)) from error
    return only_app(path, vars(module))


def may_pass(error: BaseException) -> bool:
    """Whether another start may succeed where this one failed: Spark's JVM died, or an engine that is about to end
    still holds the store. Neither is the file's fault.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ConnectionError | Py4JError | StoreInUse):
            return True
        if isinstance(cause, PySparkRuntimeError) and cause.getCondition() == "JAVA_GATEWAY_EXITED":
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def only_app(path: Path, names: dict[str, Any]) -> App:
    """The one app among a module's names."""
    found = {name: value for name, value in names.items() if isinstance(value, App)}
    if not found:
        raise NoApp(str(path))
    if len({id(app) for app in found.values()}) > 1:
        raise SeveralApps(str(path), found)
    return next(iter(found.values()))


@contextmanager
def _only_declaring() -> Iterator[None]:
    """While a file is loaded, its app cannot be run."""

    def refused(*_: object, **__: object) -> NoReturn:
        raise AppRunsItself

    own = {name: getattr(App, name) for name in ("run", "start")}
    for name in own:
        setattr(App, name, refused)
    try:
        yield
    finally:
        for name, method in own.items():
            setattr(App, name, method)


def _line(error: Exception, file: str) -> int | None:
    """The line of the file in which an error arose: the innermost of its own lines."""
    if isinstance(error, SyntaxError) and error.filename == file:
        return error.lineno
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return lines[-1] if lines else None


def _said(error: Exception) -> str:
    """An error in one message; the name of its class where that says more than the text."""
    if isinstance(error, SyntaxError):
        return f"SyntaxError: {error.msg}"
    return str(error) if isinstance(error, SlipstreamError) else f"{type(error).__name__}: {error}"
