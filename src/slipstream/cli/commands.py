"""The command's verbs. Each reads its arguments, has the work done elsewhere and prints what came of
it.

Spark and the engine are imported by the verbs that need them, so that `--help` and `status` answer at
once. A `SlipstreamError` is a message for the user, printed without a traceback; any other error is a
mistake of ours and keeps it.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from slipstream.cli import recovering
from slipstream.core.errors import SlipstreamError
from slipstream.core.settings import Declaration
from slipstream.core.version import __version__
from slipstream.spark.console import quiet_start

if TYPE_CHECKING:
    from slipstream.core.settings import Starting

commands = typer.Typer(
    name="slipstream",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

File = Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="Python file that declares one App.")]
StorePath = Annotated[Path, typer.Argument(metavar="STORE", help="The app's store folder.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


def main() -> None:
    """Run the command; an error of Slipstream is one message and exit code 1, Ctrl-C is exit code 130."""
    warnings.showwarning = _warned  # type: ignore[assignment]
    try:
        commands()
    except SlipstreamError as error:
        Console(stderr=True).print("[bold red]error:[/] ", end="")
        print(error, file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


def _warned(message: Warning | str, category: type[Warning], *where: object) -> None:
    """A warning is a message for the user as well; where in the code it arose is no help."""
    name = "" if issubclass(category, UserWarning) else f"{category.__name__}: "
    print(f"warning: {name}{message}", file=sys.stderr)


def _version(asked: bool) -> None:
    if asked:
        print(f"slipstream {__version__}")
        raise typer.Exit


@commands.callback()
def slipstream(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Keeps the results of PySpark and Spark SQL queries up to date as their inputs change."""


@commands.command()
def run(
    file: File,
    until: Annotated[
        str | None,
        typer.Option(help="'caught_up' to end when there is no new input, or the number of an epoch."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a line of JSON for each epoch, and one for the whole.")
    ] = False,
    takeover: Annotated[
        bool,
        typer.Option("--takeover", help="Take the store from an engine that holds it and does not answer."),
    ] = False,
    rebuild: Annotated[
        list[str] | None,
        typer.Option(help="Compute a view anew from its inputs, changed or not; may be repeated."),
    ] = None,
    replace: Annotated[
        bool,
        typer.Option(
            "--replace", help="Let every view whose query was changed take the place of what it was."
        ),
    ] = False,
    accept_loss: Annotated[
        bool,
        typer.Option("--accept-loss", help="Go back behind what was called safe, if there is no other way."),
    ] = False,
    supervised: Annotated[
        bool, typer.Option("--supervise", help="Start the engine again when it dies or hangs.")
    ] = False,
    standby: Annotated[
        bool, typer.Option("--standby", help="The same, with a second engine that takes over at once.")
    ] = False,
    stuck_after: Annotated[
        str, typer.Option(help="With --supervise: how long an engine may show no sign of life.")
    ] = "60s",
    beat: Annotated[Path | None, typer.Option(hidden=True)] = None,
    await_store: Annotated[bool, typer.Option(hidden=True)] = False,
) -> None:
    """Run the app that a file declares, until it is stopped.

    Ctrl-C finishes the epoch in hand and stops; a second one stops at once.

    What the file has under [bold]if __name__ == "__main__":[/] is not run.

    Example: [bold]slipstream run shop.py --until caught_up[/]
    """
    goal = _goal(until)
    if supervised or standby:
        options = [*(["--until", until] if until else []), *(["--json"] if as_json else [])]
        options += ["--replace"] if replace else []
        once = [*(["--takeover"] if takeover else []), *(f"--rebuild={view}" for view in rebuild or ())]
        once += ["--accept-loss"] if accept_loss else []
        sys.exit(_supervised(file, options, once, standby, stuck_after))
    from slipstream.cli.displays import display
    from slipstream.cli.heartbeat import Heart, end_with
    from slipstream.cli.loading import load_app, may_pass
    from slipstream.cli.running import Signals, aside, run_app
    from slipstream.core.settings import Starting

    console = Console(highlight=False)
    signals = Signals()
    heart = Heart(beat)
    promoted = end_with(sys.stdin.fileno()) if beat is not None else threading.Event()
    heart.beat("starting")
    wanted = Starting(takeover, tuple(rebuild or ()), accept_loss, replace)
    try:
        with _starting(console, f"starting Spark for {file}", as_json):
            app = aside(lambda: load_app(file, wanted, standby=await_store))
    except SlipstreamError as error:
        if not may_pass(error):
            heart.beat("refused")
        raise
    if await_store:

        def waiting() -> bool:
            heart.beat("standby")
            return not signals.count

        aside(lambda: app.stand_by(waiting, promoted.is_set))
    if signals.count:
        print("stopped before the first epoch was begun", file=sys.stderr)
        return
    app.on_turn(lambda epoch: heart.beat("running", epoch))
    with display(app.name, console, as_json) as shown:
        summary = run_app(app, goal, shown, signals)
    epoch = app.epoch
    if as_json:
        totals = {"epochs": summary.epochs, "rows": summary.rows, "seconds": round(summary.seconds, 3)}
        print(
            json.dumps({"summary": {**totals, "rejected": summary.rejected, "computed": epoch}}), flush=True
        )
    else:
        print(f"{app.name}: stopped at epoch {epoch}; this run: {summary}", flush=True)
    app.close()


@commands.command()
def status(store: StorePath, as_json: AsJson = False) -> None:
    """Show what a store holds: epochs, views, sources. Quick, and harmless to a running app.

    Example: [bold]slipstream status ./shop[/]
    """
    from slipstream.observe import read_status

    seen = read_status(store)
    if as_json:
        print(json.dumps(asdict(seen), indent=2))
    else:
        from slipstream.cli.tables import status_picture

        Console(highlight=False).print(status_picture(seen, time.time()))


@commands.command()
def sinks(store: StorePath, as_json: AsJson = False) -> None:
    """Show how far the sinks of an app are, and what is wrong with them, as its engine noted it last.

    The exit code is 2 if one of them fails. Mending is for the app: [bold]app.reset_sink(NAME)[/] writes a target anew.

    Example: [bold]slipstream sinks ./shop[/]
    """
    from slipstream.observe import read_status

    seen = read_status(store)
    if as_json:
        print(json.dumps({name: asdict(each) for name, each in seen.sinks.items()}, indent=2))
    else:
        from slipstream.cli.tables import sinks_of

        console = Console(highlight=False)
        for table in sinks_of(seen, time.time()):
            console.print(table)
        if not seen.sinks:
            print(f"{seen.app}: no sinks")
    if any(each.error is not None for each in seen.sinks.values()):
        sys.exit(2)


@commands.command()
def query(
    store: StorePath,
    sql: Annotated[str, typer.Argument(metavar="SQL", help="A query over the store's views, by name.")],
    as_of: Annotated[
        str | None, typer.Option(help="An epoch, or a time such as 2026-01-31T12:00:00; by default now.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Show at most so many rows.")] = 100,
    as_json: AsJson = False,
) -> None:
    """Answer SQL over the views of a store, all as of one epoch, whether its app is running or not.

    Example: [bold]slipstream query ./shop "SELECT * FROM revenue ORDER BY revenue DESC" --as-of 12[/]
    """
    from slipstream.cli.query import ask
    from slipstream.cli.running import Signals, aside
    from slipstream.cli.tables import print_answer
    from slipstream.observe import wording

    console = Console(highlight=False)
    Signals(borne=1)
    began = time.monotonic()
    with _starting(console, "starting Spark", as_json):
        answer = aside(lambda: ask(store, sql, as_of, limit))
    if as_json:
        names = wording.distinct(answer.columns)
        rows = [dict(zip(names, map(wording.plain, row), strict=True)) for row in answer.rows]
        print(json.dumps({"epoch": answer.epoch, "columns": names, "rows": rows, "more": answer.more}))
    else:
        print_answer(console, answer, time.monotonic() - began)


@commands.command()
def explain(
    file: File,
    view: Annotated[str | None, typer.Option(help="Only this view.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show how the views that a file declares are maintained, without running them.

    The app's store must not be in use; where there is none, none is made.

    Example: [bold]slipstream explain shop.py --view revenue[/]
    """
    from slipstream.cli.running import Signals, aside

    console = Console(highlight=False)
    Signals(borne=1)
    with _starting(console, f"starting Spark for {file}", as_json):
        steps, text = aside(lambda: _explained(file, view))
    print(json.dumps(steps, indent=2) if as_json else text)


@commands.command()
def plan(
    file: File,
    rebuild: Annotated[
        list[str] | None, typer.Option(help="As if this view were to be computed anew; may be repeated.")
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="As if changed views were to be replaced.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show what a start of the app that a file declares would compute, reuse and drop. Nothing is changed.

    The exit code is 1 if it could not be done: input is gone, or a view would be replaced without being asked to.

    Example: [bold]slipstream plan shop.py[/]
    """
    from slipstream.cli.running import Signals, aside
    from slipstream.core.settings import Starting

    console = Console(highlight=False)
    Signals(borne=1)
    wanted = Starting(rebuild=tuple(rebuild or ()), replace=replace)
    with _starting(console, f"starting Spark for {file}", as_json):
        told, text, possible = aside(lambda: _planned(file, wanted))
    print(json.dumps(told, indent=2) if as_json else text)
    if not possible:
        sys.exit(1)


for verb in (recovering.recover, recovering.drill, recovering.fsck):
    commands.command()(verb)


def _explained(file: Path, view: str | None) -> tuple[dict[str, Any], str]:
    from slipstream.cli.loading import load_app
    from slipstream.core.settings import Starting

    with (
        tempfile.TemporaryDirectory(prefix="slipstream-explain-") as scratch,
        load_app(file, Starting(declared=lambda said: _without_store(said, Path(scratch)))) as app,
    ):
        return {name: asdict(step) for name, step in app.steps(view).items()}, app.explain(view)


def _without_store(said: Declaration, scratch: Path) -> Declaration:
    """What to open so that no store is made where there is none, on this disk or on a replica."""
    if said.store.exists():
        return said
    replicas = tuple((scratch / f"replica-{i}").as_uri() for i in range(len(said.durability.replicas)))
    return replace(said, store=scratch / "store", durability=replace(said.durability, replicas=replicas))


def _planned(file: Path, wanted: Starting) -> tuple[dict[str, Any], str, bool]:
    from slipstream.cli.loading import load_app

    with load_app(file, wanted, looking=True) as app:
        proposed = app.plan()
        return asdict(proposed), str(proposed), proposed.possible


def _supervised(file: Path, options: list[str], once: list[str], standby: bool, stuck_after: str) -> int:
    from slipstream.cli.supervise import engine_command, supervise
    from slipstream.cli.watchover import Policy
    from slipstream.core.durations import seconds

    policy = Policy(stuck_after=seconds(stuck_after), standby=standby)

    def say(text: str) -> None:
        print(f"supervisor: {text}", file=sys.stderr, flush=True)

    return supervise(engine_command(file, options, once), policy, say)


def _goal(until: str | None) -> str | int | None:
    if until is None or until == "caught_up":
        return until
    if until.isdecimal():
        return int(until)
    raise typer.BadParameter(
        f"'{until}' is neither 'caught_up' nor the number of an epoch", param_hint="--until"
    )


@contextmanager
def _starting(console: Console, text: str, as_json: bool) -> Iterator[None]:
    """Spark starts here: its console is kept tidy, and in a terminal there is something to look at."""
    shown = Console(quiet=True) if as_json or not console.is_terminal else console
    with shown.status(text), quiet_start():
        yield
