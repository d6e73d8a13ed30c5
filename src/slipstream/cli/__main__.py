"""`python -m slipstream.cli`: the command where it is not on the PATH."""

from slipstream.cli.commands import main

main()
