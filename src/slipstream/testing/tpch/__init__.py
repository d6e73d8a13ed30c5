"""TPC-H: its tables, made by `tpchgen-cli`, and its 22 queries as Spark SQL."""

from slipstream.testing.tpch.queries import NUMBERS, query
from slipstream.testing.tpch.tables import TABLES, Table, generate

__all__ = ["NUMBERS", "TABLES", "Table", "generate", "query"]
