"""What a file declares, without opening its store or starting Spark.

The file runs as far as its `App(...)`, which tells what it was given and then ends the run.
"""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

from slipstream.cli.loading import load_app
from slipstream.core.errors import NoApp
from slipstream.core.settings import Declaration, Starting


class _Told(BaseException):
    """Ends the run of a file; no `except Exception` of its own is in the way."""

    def __init__(self, declaration: Declaration) -> None:
        super().__init__(declaration)
        self.declaration = declaration


def declared_in(file: Path) -> Declaration:
    """The app that a file declares, and where it keeps what."""
    try:
        load_app(file, Starting(declared=_tell))
    except _Told as told:
        return told.declaration
    raise NoApp(str(file))


def _tell(declaration: Declaration) -> NoReturn:
    raise _Told(declaration)
