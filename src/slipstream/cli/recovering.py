"""The verbs for when something is lost: recover, drill, fsck. Registered with the others in `commands`.

What they find out and do is `durability`'s; here it is asked for and put into words.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Target = Annotated[
    str,
    typer.Argument(
        metavar="STORE|FILE.py", help="A store's folder, or the Python file that declares its app."
    ),
]


_DOES = {
    "go on": "go on after epoch {epoch}: all of it is there.",
    "fetch": "fetch what is missing from replicas, and go on after epoch {epoch}.",
    "step back": "step back to epoch {epoch}, the last that is whole.",
    "restore": "restore the store from replicas, as of epoch {epoch}.",
}
"""What a start would do, by the kind of its plan."""

_QUERIES = (
    "whether the app's queries are still those that the store was computed with, which needs Spark: if one changed, a "
    "start refuses, and says which view to compute anew (`slipstream run FILE.py --rebuild VIEW`)"
)
_BYTES = (
    "the bytes of layers that were flushed, and of what replicas hold, beyond their seals, names and sizes "
    "(`slipstream fsck STORE` reads every byte of a store, `slipstream fsck REPLICA` of a replica)"
)
_SOON = 0.05
_INPUT = "whether the input of epochs that are to be computed is still there"


def recover(
    target: Target,
    source: Annotated[
        list[str] | None, typer.Option("--from", metavar="REPLICA", help="URL of a replica; may be repeated.")
    ] = None,
    to: Annotated[
        Path | None, typer.Option("--to", metavar="NEWSTORE", help="A folder that does not exist yet.")
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Only say what a start would do now, and why. Nothing is changed.")
    ] = False,
    accept_loss: Annotated[
        bool,
        typer.Option("--accept-loss", help="Go back behind what was called safe, if there is no other way."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Rebuild a store from replicas, or say what a start would do.

    An app recovers by itself when it starts. This is for another folder or machine, and for looking first.

    Example: [bold]slipstream recover --plan shop.py[/]

    Example: [bold]slipstream recover ./shop --from s3://bucket/shop --to /data/shop[/]
    """
    if plan:
        _print_plan(target, source or [], accept_loss, as_json)
        return
    if not source or to is None:
        raise typer.BadParameter("give --plan, or --from REPLICA and --to NEWSTORE")
    from slipstream.durability.start import recover_into

    began = time.monotonic()
    started = recover_into(Path(target), tuple(source), to, accept_loss=accept_loss)
    app, done = started.identity.app, started.plan
    if as_json:
        said = {"app": app, "epoch": done.epoch, "layers": len(done.fetch), "bytes": done.bytes}
        print(json.dumps({**said, "store": str(to), "seconds": round(time.monotonic() - began, 3)}))
    else:
        print(f"{app}: {to} is the store as of epoch {done.epoch}: {len(done.fetch)} layers, checked")
        if started.said:
            print(started.said)


def drill(
    file: Annotated[
        Path, typer.Argument(exists=True, dir_okay=False, help="Python file that declares one App.")
    ],
    as_json: AsJson = False,
) -> None:
    """Rehearse a recovery on a copy: restore, catch up, compare. Nothing of the original is changed.

    Meant for a cron job: the exit code is 0 if the answers are the same, and 2 if not.

    Example: [bold]slipstream drill shop.py[/]
    """
    from slipstream.cli.declaring import declared_in
    from slipstream.cli.drill import drill as rehearse
    from slipstream.cli.running import Signals, aside
    from slipstream.spark.console import quiet_start

    Signals(borne=1)
    with quiet_start():
        seen = aside(lambda: rehearse(file, declared_in(file)))
    if as_json:
        print(json.dumps({**asdict(seen), "passed": seen.passed}, indent=2))
    else:
        from slipstream.observe import wording

        guess = "unknown" if seen.predicted_seconds is None else f"{seen.predicted_seconds:.1f} s"
        lost = "the store is lost" if seen.replicated else "the engine dies (there are no replicas)"
        source = seen.source if seen.replicated else f"a copy of {seen.source}"
        lacking = seen.epoch - seen.restored
        again = wording.number(lacking, "epoch") if lacking else "nothing"
        print(f"{seen.app}: rehearsed that {lost}: recovered from {source} as of epoch {seen.restored}")
        print(f"{again} had to be computed again")
        print(
            f"took {seen.seconds:.1f} s ({seen.start_seconds:.1f} s until it could go on, Spark's start included, "
            f"{seen.catch_up_seconds:.1f} s to catch up); predicted: {guess}"
        )
        for view, why in seen.uncompared.items():
            print(f"{view}: not compared: {why}")
        for view in seen.differing:
            print(f"{view}: DIFFERS from the original as of epoch {seen.epoch}")
        verdict = "the same rows" if seen.passed else "NOT the same"
        compared = wording.number(seen.compared, "view")
        print(f"{compared} compared with the original's as of epoch {seen.epoch}: {verdict}")
    if not seen.passed:
        raise typer.Exit(2)


def fsck(
    target: Annotated[
        str, typer.Argument(metavar="STORE|REPLICA", help="A store's folder, or a replica's URL or folder.")
    ],
    repair: Annotated[
        bool, typer.Option("--repair", help="Put right what can be put right, and say what was done.")
    ] = False,
    source: Annotated[
        list[str] | None,
        typer.Option("--from", metavar="REPLICA", help="With --repair: fetch from here; may be repeated."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check every byte of a store or a replica, every log, every cover and every epoch checksum.

    The exit code is 0 if all is well, and 2 if something is wrong.

    Example: [bold]slipstream fsck ./shop --repair[/]
    """
    from slipstream.durability.fsck import check_replica, check_store, replica_in
    from slipstream.durability.repair import Repaired
    from slipstream.durability.repair import repair as repaired

    url = target if "://" in target else replica_in(target)
    if repair and url is not None:
        raise typer.BadParameter("a replica is repaired by the running app; --repair is for a store")
    if repair:
        done = repaired(target, source or _replicas_of(Path(target)))
    else:
        done = Repaired((), check_store(target) if url is None else check_replica(url))
    seen = done.left
    if as_json:
        mended = {"did": done.did, "rebuild": done.rebuild, "refused": done.refused} if repair else {}
        print(json.dumps({**asdict(seen), "sound": seen.sound, **mended}, indent=2))
    else:
        for each in done.did:
            print(f"repaired: {each}")
        if done.refused is not None:
            print(f"not repaired{', the rest' if done.did else ''}: {done.refused}")
        for command in done.commands:
            print(f"to compute it again from the input: {command}")
        for finding in (*seen.findings, *seen.told):
            print(f"{finding.where}: {finding.what}")
        for unchecked in seen.unchecked:
            print(f"not checked: {unchecked}")
        what = f"{seen.layers} layers" + (f" in {seen.objects} objects" if seen.objects else "")
        verdict = "sound" if seen.sound else f"{len(seen.findings)} problem(s)"
        usable = (
            f"recoverable up to epoch {seen.recoverable}" if seen.recoverable else "not recoverable from here"
        )
        print(f"{seen.path}: epoch {seen.epoch}, {what}: {verdict}" + ("" if seen.sound else f"; {usable}"))
    if not seen.sound:
        raise typer.Exit(2)


def _print_plan(target: str, source: list[str], accept_loss: bool, as_json: bool) -> None:
    """What a start would do now."""
    from slipstream.core.errors import NotAStore
    from slipstream.core.settings import Durability
    from slipstream.durability.recovery import Kind
    from slipstream.durability.start import plan_start

    app: str | None = None
    if target.endswith(".py"):
        from slipstream.cli.declaring import declared_in

        declaration = declared_in(Path(target))
        app, path, durability = declaration.app, declaration.store, declaration.durability
    else:
        path = Path(target)
        durability = Durability(tuple(source or _replicas_of(path)))
    planned = plan_start(path, app, durability, accept_loss=accept_loss)
    plan, estimate = planned.plan, planned.estimate
    if app is None and plan.kind is Kind.START_EMPTY:  # nobody looks at a folder, or a replica, to hear that
        raise NotAStore(target)
    begins = plan.error is not None or plan.kind.value == "start empty"
    unchecked = [] if begins else [_BYTES, _QUERIES, *([_INPUT] if plan.again else [])]
    if as_json:
        said: dict[str, Any] = {
            "does": plan.kind.value,
            "epoch": plan.epoch,
            "again": plan.again,
            "bytes": plan.bytes,
            "seconds": estimate.seconds,
            "why": plan.why,
            "lost": plan.lost,
            "found": plan.judged,
            "error": None if plan.error is None else str(plan.error),
            "unchecked": unchecked,
        }
        print(json.dumps(said, indent=2))
    else:
        for found in plan.judged:
            print(found)
        print(_in_words(plan.kind.value, plan.epoch, plan.again, plan.bytes))
        for why in plan.why:
            print(f"- it would say: {why}")
        for lost in plan.lost:
            print(f"- given up: {lost}")
        if plan.error is not None:
            print(plan.error)
        elif estimate.seconds is not None:
            soon = estimate.seconds < _SOON
            print(f"expected: {'at once' if soon else f'{estimate.seconds:.1f} s'}, once Spark has started")
        else:
            print("expected: not known, as nothing was measured yet")
        for each in unchecked:
            print(f"not looked at: {each}")
    if plan.error is not None:
        raise typer.Exit(2)


def _replicas_of(path: Path) -> list[str]:
    """The replicas that a store's agent last spoke of; without secrets, which the environment must then have."""
    from slipstream.durability.board import read_replication
    from slipstream.store.store import Store

    return list(read_replication(Store.in_folder(path).disk).replicas)


def _in_words(kind: str, epoch: int, again: int, size: int) -> str:
    from slipstream.observe import wording

    if kind == "refuse":
        return "A start would refuse."
    if kind == "start empty":
        return "A start would begin a new app: there is no sign of an earlier one."
    text = f"A start would {_DOES[kind].format(epoch=epoch)}"
    text += f" {wording.size(size)} would be fetched." if size else ""
    text += f" {wording.number(again, 'epoch')} would be computed again, as cut." if again else ""
    return text
