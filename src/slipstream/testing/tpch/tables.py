"""The eight tables: columns, types and keys as the standard has them, and rows from `tpchgen-cli`.

No column may be NULL, so that `NOT IN` is an ordinary anti join. Identifiers are 64 bits wide and money is a
decimal, as the generator writes them.
"""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.types import StructField, StructType

from slipstream.core.errors import ToolMissing


@dataclass(frozen=True)
class Table:
    """One table: its columns as DDL, and its primary key."""

    name: str
    columns: str
    key: tuple[str, ...]

    @property
    def schema(self) -> StructType:
        parsed: StructType = StructType.fromDDL(self.columns)  # type: ignore[assignment]
        return StructType([StructField(field.name, field.dataType, False) for field in parsed])

    def rows(self, folder: Path) -> pa.Table:
        """The rows that `generate` wrote to a folder."""
        read = pq.read_table(folder / f"{self.name}.parquet")
        plain = [pa.string() if kind == pa.string_view() else kind for kind in read.schema.types]
        return pa.table(
            [column.cast(kind).combine_chunks() for column, kind in zip(read.columns, plain, strict=True)],
            names=read.column_names,
        )


_ALL = (
    Table("region", "r_regionkey long, r_name string, r_comment string", ("r_regionkey",)),
    Table("nation", "n_nationkey long, n_name string, n_regionkey long, n_comment string", ("n_nationkey",)),
    Table(
        "supplier",
        "s_suppkey long, s_name string, s_address string, s_nationkey long, s_phone string, "
        "s_acctbal decimal(15,2), s_comment string",
        ("s_suppkey",),
    ),
    Table(
        "customer",
        "c_custkey long, c_name string, c_address string, c_nationkey long, c_phone string, "
        "c_acctbal decimal(15,2), c_mktsegment string, c_comment string",
        ("c_custkey",),
    ),
    Table(
        "part",
        "p_partkey long, p_name string, p_mfgr string, p_brand string, p_type string, p_size int, "
        "p_container string, p_retailprice decimal(15,2), p_comment string",
        ("p_partkey",),
    ),
    Table(
        "partsupp",
        "ps_partkey long, ps_suppkey long, ps_availqty int, ps_supplycost decimal(15,2), ps_comment string",
        ("ps_partkey", "ps_suppkey"),
    ),
    Table(
        "orders",
        "o_orderkey long, o_custkey long, o_orderstatus string, o_totalprice decimal(15,2), o_orderdate date, "
        "o_orderpriority string, o_clerk string, o_shippriority int, o_comment string",
        ("o_orderkey",),
    ),
    Table(
        "lineitem",
        "l_orderkey long, l_partkey long, l_suppkey long, l_linenumber int, l_quantity decimal(15,2), "
        "l_extendedprice decimal(15,2), l_discount decimal(15,2), l_tax decimal(15,2), l_returnflag string, "
        "l_linestatus string, l_shipdate date, l_commitdate date, l_receiptdate date, l_shipinstruct string, "
        "l_shipmode string, l_comment string",
        ("l_orderkey", "l_linenumber"),
    ),
)
TABLES = {table.name: table for table in _ALL}
"""By name, each after those that it refers to."""


def generate(folder: Path, scale: float) -> None:
    """Write every table of a scale factor to a folder, as `NAME.parquet`. The same rows every time."""
    beside = Path(sysconfig.get_path("scripts")) / "tpchgen-cli"
    tool = str(beside) if beside.exists() else shutil.which("tpchgen-cli")
    if tool is None:
        raise ToolMissing("tpchgen-cli", "TPC-H tables are made by it", "pip install tpchgen-cli")
    command = [tool, "parquet", "--scale-factor", str(scale), "--output-dir", str(folder)]
    subprocess.run(command, check=True, capture_output=True)
