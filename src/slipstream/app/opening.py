"""How an app gets its store: whether it claims it or only watches, and what a start lets go with consent."""

from __future__ import annotations

import dataclasses
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Literal

from slipstream.core.errors import (
    BadAppOption,
    InputGone,
    RecoveryWarning,
    SlipstreamError,
    StoreNotWritable,
    StoreReadOnly,
    StoreUnreadable,
    StoreVanished,
)
from slipstream.durability.start import Started
from slipstream.epoch.gone import shortened
from slipstream.sources import Source
from slipstream.store.events import fields
from slipstream.store.store import Claim, Store, claim_store

_LOG = logging.getLogger("slipstream.engine")

_standing_by: ContextVar[Literal["", "standing by", "looking"]] = ContextVar("standing_by", default="")


def check_options(name: object, shards: object, replicas: object) -> None:
    """Raise for what an app cannot be opened with."""
    if not isinstance(name, str) or not name.strip():
        raise BadAppOption(f"an app cannot be called {name!r}", "give it a name, such as App('shop', ...)")
    if shards is not None and (isinstance(shards, bool) or not isinstance(shards, int) or shards < 1):
        raise BadAppOption(
            f"shards={shards!r} is no number of shards", "give 1 or more, or leave it out for one a core"
        )
    if isinstance(replicas, str):
        raise BadAppOption(f"replicas={replicas!r} is one text", f"give a list: replicas=[{replicas!r}]")


def check_on_its_own(root: Path) -> None:
    """Raise for a store that would be in the folder of another one, which takes what it does not know for rubbish."""
    for folder in root.absolute().parents:
        other = None
        with suppress(SlipstreamError, OSError):  # nothing that can be told to be one
            other = Store.at(folder).identity()
        if other is not None:
            raise BadAppOption(
                f"the store '{root}' would be inside of '{folder}', which is the store of the app '{other.app}'",
                "give each app a store of its own, one beside the other",
            )


@contextmanager
def standing_by(*, looking: bool = False) -> Iterator[None]:
    """Apps that are opened inside leave their store to the engine that has it, until `App.stand_by`. looking: they are
    only looked at, and write nothing at all.
    """
    token = _standing_by.set("looking" if looking else "standing by")
    try:
        yield
    finally:
        _standing_by.reset(token)


def watching() -> Literal["", "standing by", "looking"]:
    """How apps that are opened now leave their store to the engine that has it, if they do."""
    return _standing_by.get()


def claimed(store: Store, app: str, *, takeover: bool) -> Claim:
    """A store that is claimed, or what is in the way of that."""
    try:
        return claim_store(store, app, takeover=takeover)
    except OSError as error:
        raise StoreNotWritable(str(store.root), f"{error.strerror}: '{error.filename}'") from None
    except (StoreReadOnly, StoreUnreadable, StoreVanished) as error:
        if isinstance(error, StoreVanished) and store.root.exists():
            raise
        why = error.__cause__
        told = f"{why.strerror}: '{why.filename}'" if isinstance(why, OSError) else str(error)
        raise StoreNotWritable(str(store.root), told) from None


def without_gone(app: str, started: Started, sources: Mapping[str, Source], *, accept: bool) -> Started:
    """Let go, with consent, of input that is gone and that epochs which were cut still need."""
    lineage = started.lineage
    short = shortened(lineage.history.pending, sources)
    if short is None:
        return started
    if not accept:
        raise InputGone(short.epochs, short.told)
    history = lineage.history
    for cut in short.cuts:
        started.claim.check_ours()
        started.writer.append(cut)
        history = history.after(cut)
    told = f"{short.epochs}: input that is gone is left out ({short.told})"
    _LOG.warning("input that is gone is left out", extra=fields(epoch=history.frontier, cause=told))
    warnings.warn(f"{app}: accepted: {told}", RecoveryWarning, stacklevel=4)
    return dataclasses.replace(started, lineage=dataclasses.replace(lineage, history=history))
