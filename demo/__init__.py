"""A shop, live: `python -m demo`."""
