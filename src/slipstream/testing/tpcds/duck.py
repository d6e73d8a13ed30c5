"""DuckDB with its extension for TPC-DS, both from packages: nothing is downloaded when it is used."""

from __future__ import annotations

from importlib.resources import as_file, files
from typing import Any


def connected(scale: float) -> Any:
    """A connection to a database in memory with the tables of a scale factor; 0 is tables without rows."""
    import duckdb

    connection = duckdb.connect(config={"threads": 1})
    versions = files("duckdb_extension_tpcds") / "extensions"
    with as_file(versions / f"v{duckdb.__version__}" / "tpcds.duckdb_extension") as extension:
        connection.execute(f"LOAD '{extension}'")
    connection.execute(f"CALL dsdgen(sf={scale})")
    return connection
