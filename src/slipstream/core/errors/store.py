"""What is wrong with a store, or with whose it is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from slipstream.core.errors.base import SlipstreamError


class MissingLayer(SlipstreamError):
    """The layers of a trace do not add up to the epochs that a reader asked for."""

    def __init__(
        self, directory: str, first: int, last: int, start: int, stop: int, collapsed: int | None = None
    ) -> None:
        epochs = f"epoch {first}" if first == last else f"epochs {first} to {last}"
        remedy = (
            "Restore the layer from a replica."
            if collapsed is None
            else f"History up to epoch {collapsed} is collapsed into one layer: read epoch {collapsed} or a later one."
        )
        super().__init__(
            f"The trace in '{directory}' has no layer for {epochs} in the places {start} to {stop}. "
            f"Missing state is never taken as empty. {remedy}"
        )


class BadLayer(SlipstreamError):
    """Rows that were to be written break the rules of a trace."""

    def __init__(self, layer: str, problem: str, remedy: str) -> None:
        super().__init__(f"Layer '{layer}': {problem}. {remedy}")


class LayerAway(SlipstreamError):
    """A layer that is on a replica cannot be brought."""

    def __init__(self, layer: str, replica: str, why: str) -> None:
        super().__init__(
            f"The layer {layer} is still on the replica '{replica}', which cannot be read ({why}). See that the "
            "replica can be reached and start again: nothing is lost."
        )


class DamagedLayer(SlipstreamError):
    """A layer's file is not what was written. layer: its `LayerName`."""

    def __init__(self, trace: str, layer: Any, problem: str) -> None:
        self.trace, self.layer, self.problem = trace, layer, problem
        super().__init__(
            f"The layer {trace}/{layer.filename} is damaged: {problem}. Nothing was computed from it. Replace it "
            "from a replica with `slipstream fsck STORE --repair --from URL`."
        )


class BadTraceName(SlipstreamError):
    """A text that was read from a store or a replica, and cannot name a trace."""

    def __init__(self, given: object) -> None:
        super().__init__(
            f"{given!r} cannot be the name of a trace: that is traces/VIEW/TRACE, of letters, digits and _ . @ -, "
            "and no dot at the beginning. Nothing was read or written there. The file that names it is damaged, or "
            "was not written by Slipstream: restore it from another copy."
        )


class NotAStore(SlipstreamError):
    def __init__(self, path: str, because: str = "it has no format.json") -> None:
        super().__init__(
            f"'{path}' is not a Slipstream store: {because}. "
            "Give the folder that an app was run with (App(..., store=FOLDER)); `slipstream run FILE.py` makes one."
        )


class StoreIsAFile(SlipstreamError):
    def __init__(self, path: str) -> None:
        super().__init__(
            f"'{path}' is a file, and a store is a folder. Give another path: App(..., store=FOLDER)."
        )


class StoreLinkedAway(SlipstreamError):
    """The path of a store is a symbolic link to nowhere."""

    def __init__(self, path: str, to: str) -> None:
        super().__init__(
            f"'{path}' is a link to '{to}', which is not there. Put that folder back (is its disk mounted?), or make "
            "it if the store is a new one, and run again."
        )


class StoreLinked(SlipstreamError):
    """A store has a symbolic link in it."""

    def __init__(self, path: str, links: Iterable[str]) -> None:
        self.links = tuple(links)
        more = f" and {len(self.links) - 5} more" if len(self.links) > 5 else ""
        super().__init__(
            f"the store '{path}' has symbolic links in it ({', '.join(self.links[:5])}{more}), and nothing in a store "
            "is a path to follow. Put what they lead to in their place, or remove them: what is then missing is "
            "recovered as far as replicas have it. To have a store elsewhere, let its own folder be the link."
        )


class StoreInUse(SlipstreamError):
    def __init__(self, path: str, holder: str) -> None:
        super().__init__(
            f"the store '{path}' is in use by {holder or 'another process'}. Two engines cannot write one store: "
            "stop the other one, or give this app a store of its own."
        )


class OtherApp(SlipstreamError):
    def __init__(self, path: str, known: str, given: str) -> None:
        super().__init__(
            f"the store '{path}' belongs to the app '{known}', not to '{given}'. "
            f"Name the app '{known}', or give '{given}' a store of its own."
        )


class NewerFormat(SlipstreamError):
    def __init__(self, path: str, found: int, known: int) -> None:
        super().__init__(
            f"the store '{path}' has format {found}; this version of Slipstream reads up to format {known}. "
            "Install the newer Slipstream that wrote it; nothing was changed."
        )


class OlderFormat(SlipstreamError):
    def __init__(self, path: str, found: int, known: int) -> None:
        super().__init__(
            f"the store '{path}' has format {found}, which has no checksums; this version of Slipstream reads format "
            f"{known}. Nothing was changed. Go on with the version that wrote it, or give the app a new store (and new "
            "replicas): it then computes everything again from the input."
        )


class StoreTrouble(SlipstreamError):
    """The disk under a store fails. The engine waits, and goes on by itself once the cause is gone."""


class StoreFull(StoreTrouble):
    def __init__(self, path: str) -> None:
        super().__init__(
            f"the disk of the store '{path}' is full. Nothing is lost: make room, and the engine goes on by itself."
        )


class StoreReadOnly(StoreTrouble):
    def __init__(self, path: str) -> None:
        super().__init__(
            f"the store '{path}' is on a read-only file system. Nothing is lost: mount it for writing, and the engine "
            "goes on by itself."
        )


class StoreUnreadable(StoreTrouble):
    def __init__(self, path: str, why: str) -> None:
        super().__init__(
            f"the store '{path}' cannot be used: {why}. See to its permissions or its disk; the engine goes on by "
            "itself."
        )


class StoreVanished(StoreTrouble):
    def __init__(self, path: str) -> None:
        super().__init__(
            f"the folder of the store '{path}' is gone. Put it back (is the disk still mounted?), or stop the engine "
            "and start it again: it is then restored from a replica, if there is one."
        )


class JobHindered(StoreTrouble):
    """An epoch's job could not write, or not fetch a layer, and the store's disk, asked afterwards, is well."""

    def __init__(self, epoch: int, cause: str) -> None:
        super().__init__(
            f"epoch {epoch} was hindered: {cause} Nothing is lost. See that there is room "
            "on the disk of the store and on the one where Spark keeps what it shuffles (spark.local.dir), and that "
            "replicas can be reached: the engine goes on by itself."
        )


class DamagedDocument(SlipstreamError):
    """A small file of a store is not what was written, and neither is its copy."""

    def __init__(self, store: str, name: str, problem: str) -> None:
        self.name, self.problem = name, problem
        super().__init__(
            f"the store '{store}': {problem}. `slipstream fsck {store} --repair` puts it back from a replica; "
            "`slipstream recover --plan` says what a start would do."
        )


class DamagedLineage(SlipstreamError):
    """The lineage of a store does not fit together."""


class LostLineage(DamagedLineage):
    """A store was computed further than its lineage tells."""

    def __init__(self, store: str, epoch: int, witness: str) -> None:
        super().__init__(
            f"the store '{store}' was computed past epoch {epoch}, which is the newest that its lineage still tells: "
            f"{witness}. Nothing older is shown as the present: start the app, which recovers what it can or says what "
            f"it lacks, or put the lineage back from a replica with `slipstream fsck {store} --repair`. Epochs up to "
            f"{epoch} can be read by number."
        )


class Superseded(SlipstreamError):
    """Another process has taken over the store."""

    def __init__(self, store: str, incarnation: int) -> None:
        super().__init__(
            f"the store '{store}' was taken over by another process while this one, incarnation {incarnation}, was not "
            "looking. It publishes nothing more, and what it wrote since is ignored. Nothing is lost: stop it."
        )


class StoreNotEmpty(SlipstreamError):
    def __init__(self, path: str) -> None:
        super().__init__(
            f"'{path}' is not empty. A store is recovered into a new folder, so that nothing is overwritten: give one "
            "that does not exist."
        )


class StoreNotWritable(SlipstreamError):
    """An app cannot open its store, because nothing can be written there."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(
            f"the store '{path}' cannot be opened, for nothing can be written there: {why}. Give another folder "
            f"(App(..., store=FOLDER)) or see to its permissions; views are read without an app too: "
            "sl.read_view(STORE, VIEW), or `slipstream query`."
        )
