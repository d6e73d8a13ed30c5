"""A view's rows straight from the store's files: no Spark, no JVM, and no engine need be running."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pyarrow as pa

from slipstream.core.errors import MissingLayer
from slipstream.dataflow.contents import Contents
from slipstream.durability.timetravel import check_there, resolve_epoch
from slipstream.store.store import Store
from slipstream.trace import Span

_ATTEMPTS = 5


def read_view(store: str | Path, view: str, as_of: int | str | datetime | None = None) -> pa.Table:
    """A view as of an epoch or a time, by default now, as an Arrow table in no particular order."""
    found = Store.existing(store)
    entry = found.view(view)
    for attempt in range(_ATTEMPTS):
        try:
            epoch = resolve_epoch(found, as_of, [entry.trace])
            was = entry.at(epoch)
            contents = Contents.described(was.contents)
            check_there(found, view, epoch, None, base=not contents.is_bag)
            tables = contents.now(found.root, was.shown(epoch), Span.whole())
            return pa.concat_tables([contents.schema.empty_table(), *tables])
        except (FileNotFoundError, MissingLayer):  # a merger was quicker: look again
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("unreachable")
