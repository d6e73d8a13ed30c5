"""What keeps an app from going on where it was, and what is wrong with replicas."""

from __future__ import annotations

from collections.abc import Iterable

from slipstream.core.errors.base import SlipstreamError, listed


class RecoveryWarning(UserWarning):
    """A store was mended before its app could go on."""


class DrillFailed(SlipstreamError):
    """A recovery cannot be rehearsed."""

    def __init__(self, store: str, why: str) -> None:
        super().__init__(f"there is nothing to rehearse on the store '{store}': {why}. Run the app first.")


class CannotHeal(SlipstreamError):
    """An epoch needs a layer that is damaged, and it cannot be replaced from a replica. why: if not for lack of one."""

    def __init__(self, frontier: int, damage: str, why: str | None = None) -> None:
        healing = "No replica has a copy of it." if why is None else f"It could not be replaced: {why}"
        super().__init__(
            f"epoch {frontier + 1} cannot be computed; the app stays at epoch {frontier}. {damage} {healing} "
            "`slipstream fsck STORE` says what else is damaged, `slipstream fsck STORE --repair` mends what it can, "
            "and `slipstream run FILE.py --rebuild VIEW` computes a view again from its input."
        )


class BadReplica(SlipstreamError):
    def __init__(self, url: str, why: str) -> None:
        super().__init__(
            f"replica '{url}': {why}. Give a URL such as 'file:///mnt/other/shop' or 's3://bucket/shop?region=eu-west-1'."
        )


class DamagedObject(SlipstreamError):
    """An object of a replica is not what was written."""

    def __init__(self, replica: str, name: str, what: str) -> None:
        self.name, self.problem = name, what
        super().__init__(
            f"replica '{replica}': the object {name} is damaged: {what}. Recover from another replica, or let the "
            "running app write this one anew; `slipstream fsck` says what else is wrong."
        )


class OtherReplica(SlipstreamError):
    """A replica holds the copies of another app."""

    def __init__(self, replica: str, app: str, app_id: str, our_app: str, our_id: str) -> None:
        super().__init__(
            f"replica '{replica}' belongs to the app '{app}' ({app_id}), and this is the app '{our_app}' ({our_id}). "
            "Nothing was written or deleted there. Give each app replicas of its own (App(..., replicas=[URL])). If "
            f"this is to be the app '{app}' on another store, recover that store from the replica first."
        )


class ReplicaTrouble(SlipstreamError):
    """An operation on a replica failed; it is tried again."""

    def __init__(self, replica: str, operation: str, cause: str) -> None:
        self.cause = cause
        super().__init__(
            f"replica '{replica}': {operation} failed ({cause}). It is tried again by itself; see to the storage if "
            "that goes on."
        )


class SupersededOnReplica(SlipstreamError):
    """A later incarnation writes to a replica."""

    def __init__(self, replica: str, incarnation: int, later: int, after: int) -> None:
        super().__init__(
            f"replica '{replica}': this process is incarnation {incarnation} and was succeeded by incarnation {later} "
            f"after epoch {after}. It writes nothing more there; what it wrote past that epoch is ignored. Stop it."
        )


class CannotRecover(SlipstreamError):
    """State is missing, and no replica has it."""

    def __init__(self, store: str, missing: str, heard: Iterable[str]) -> None:
        copies = "; ".join(heard) or "no replica was named"
        super().__init__(
            f"the store '{store}' cannot be started: {missing}. Replicas: {copies}. Nothing was changed, and an app is "
            "never started from nothing where something was expected. Bring a replica back, or put the store's folder "
            "back; `slipstream fsck` says what is there. To begin again from the input, give the app a new store and "
            "new replicas."
        )


class WouldLose(SlipstreamError):
    """A start could only go on from an epoch behind what was promised."""

    def __init__(
        self, store: str, epoch: int, reasons: Iterable[str], lost: Iterable[str], heard: Iterable[str]
    ) -> None:
        self.epoch = epoch
        given_up = "; ".join(lost)
        taken = (
            "Epochs after it took this input, which is taken again in new epochs as far as it is still there"
        )
        needed = f" {taken}: {given_up}." if given_up else ""
        super().__init__(
            f"the store '{store}' can go on from epoch {epoch} only: {'; '.join(reasons)}.{needed} Replicas: "
            f"{'; '.join(heard) or 'no replica was named'}. Nothing was changed. Bring a replica or the store's folder "
            "back, if there is another copy. To go on without it, from whatever input is still there, run the app with "
            "`slipstream run FILE.py --accept-loss`; where layers of one view are all that is missing, compute that "
            "view anew with `slipstream run FILE.py --rebuild VIEW`. `slipstream recover --plan` says what a start "
            "would do."
        )


class ChecksumMismatch(SlipstreamError):
    """What is there does not add up to what was computed."""

    def __init__(self, where: str, epoch: int, traces: Iterable[str]) -> None:
        super().__init__(
            f"'{where}' as of epoch {epoch}: the rows of {listed(traces)} do not add up to the checksums that were "
            "noted when they were computed: something was lost, doubled or changed. Recover from another replica."
        )


class NotAReplica(SlipstreamError):
    def __init__(self, url: str) -> None:
        super().__init__(
            f"'{url}' is no replica of a Slipstream store: it has no commit. Give the URL that an app was run with "
            "(App(..., replicas=[URL]))."
        )
