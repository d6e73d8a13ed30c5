"""The command `slipstream`."""

from slipstream.cli.commands import main

__all__ = ["main"]
