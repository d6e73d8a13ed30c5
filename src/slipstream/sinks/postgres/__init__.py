"""Rows into a table of PostgreSQL's; `target` is the theory."""

from slipstream.sinks.postgres.sink import PostgresSink, to_postgres

__all__ = ["PostgresSink", "to_postgres"]
