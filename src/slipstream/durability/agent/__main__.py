"""The agent's process: `python -m slipstream.durability.agent`."""

from slipstream.durability.agent.process import main

main()
