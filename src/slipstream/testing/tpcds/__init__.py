"""TPC-DS: its 24 tables, small and dense, and its 99 queries as Spark SQL; `python -m slipstream.testing.tpcds`."""

from slipstream.testing.tpcds.queries import NUMBERS, query
from slipstream.testing.tpcds.tables import TABLES, generate

__all__ = ["NUMBERS", "TABLES", "generate", "query"]
