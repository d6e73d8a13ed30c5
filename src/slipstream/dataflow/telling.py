"""How a task tells the engine that it failed for a cause of its own, and not for a row's: a layer that is damaged or
missing or elsewhere, a disk that takes nothing more.

All that Spark passes on of a failed task is text, and a row that an expression fails on stands in that text, word for
word. So no words prove anything, unless no row can have them: each engine draws a token, which goes to its tasks with
the epoch (`task.EpochProperty`), and the text of a task's own trouble begins with it.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from slipstream.core.errors import DamagedLayer, LayerAway, MissingLayer

Trouble = Literal["damage", "hindered"]
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


class TaskTrouble(Exception):
    """What a task raises for one of its own causes: the token, the kind of trouble, what it says."""

    def __init__(self, token: str, trouble: Trouble, says: str) -> None:
        super().__init__(f"{token} {trouble}: {' '.join(says.split())}")


@contextmanager
def telling(token: str) -> Iterator[None]:
    """Where a task's own troubles are told from those of its rows."""
    try:
        yield
    except (DamagedLayer, MissingLayer) as error:
        raise TaskTrouble(token, "damage", str(error)) from error
    except LayerAway as error:
        raise TaskTrouble(token, "hindered", str(error)) from error
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        raise TaskTrouble(token, "hindered", str(error)) from error


@dataclass(frozen=True)
class Telling:
    """A stage of a plan that is no operator, and tells of its own troubles as these do."""

    stage: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
    token: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with telling(self.token):
            yield from self.stage(batches)


def trouble_told(text: str, token: str) -> tuple[Trouble, str] | None:
    """The trouble that a task of this engine told of in what Spark says of it; None where none did."""
    found = re.search(rf"{re.escape(token)} (damage|hindered): ([^\n]*)", text)
    return None if found is None else ("damage" if found[1] == "damage" else "hindered", found[2])
