"""Sources whose rows are kept: views are added and changed after their files are gone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import slipstream as sl
from slipstream.core.errors import BadSourceOption, ChangeFailed, NameTaken, UnknownView
from slipstream.sources import Source

pytestmark = pytest.mark.spark


def test_views_are_added_after_files_are_gone_where_rows_are_kept(
    spark: SparkSession, tmp_path: Path
) -> None:
    for name in ("orders", "users", "other"):
        (tmp_path / name).mkdir()

    def land(folder: str, number: int, *rows: dict[str, object]) -> None:
        (tmp_path / folder / f"{number}.json").write_text("\n".join(map(json.dumps, rows)))

    def files(name: str, schema: str, key: str | None = None, op: str | None = None) -> Source:
        return sl.files(tmp_path / name, format="json", schema=schema, settle=0, key=key, op=op)

    with sl.App("shop", store=tmp_path / "store", spark=spark, shards=2) as app:
        with pytest.raises(
            BadSourceOption, match="keep='30 days' for source 'orders': rows are kept for ever"
        ):
            app.source("orders", files("orders", "k string, v long"), keep="30 days")  # type: ignore[arg-type]
        app.source("orders", files("orders", "k string, v long"), keep=True)
        app.source("users", files("users", "k string, name string, op string", key="k", op="op"), keep=True)
        app.source("other", files("other", "k string"))
        app.view("others", "SELECT k FROM other")
        land("orders", 0, {"k": "a", "v": 1}, {"k": "a", "v": 1}, {"k": "b", "v": 2})
        land("users", 0, {"k": "a", "name": "Ann", "op": "insert"}, {"k": "b", "name": "Bob", "op": "insert"})
        land("other", 0, {"k": "a"})
        app.run(until="caught_up")
        land("users", 1, {"k": "a", "name": "Anna", "op": "update"}, {"k": "b", "name": "", "op": "delete"})
        app.run(until="caught_up")
        for file in tmp_path.glob("*/*.json"):
            if file.parent.name in ("orders", "users", "other"):
                file.unlink()
        assert app.read("orders_kept").count() == 3
        app.view("sums", "SELECT k, sum(v) s FROM orders GROUP BY k")
        app.view("named", "SELECT u.name, o.v FROM orders o JOIN users u ON o.k = u.k")
        told = app.plan()
        assert [(each.name, each.kind, each.rows) for each in told.inputs] == [
            ("orders_kept", "view", 3),
            ("users_kept", "view", 1),
        ]
        assert told.unbuildable == {"other": 1}
        assert {tuple(row) for row in app.read("sums").collect()} == {("a", 2), ("b", 2)}
        assert [tuple(row) for row in app.read("named").collect()] == [("Anna", 1), ("Anna", 1)]
        land("orders", 1, {"k": "a", "v": 5}, {"k": "b", "v": 1})
        land("users", 2, {"k": "b", "name": "Bea", "op": "insert"}, {"k": "a", "name": "Ann", "op": "update"})
        app.run(until="caught_up")
        assert {tuple(row) for row in app.read("sums").collect()} == {("a", 7), ("b", 3)}
        assert sorted(tuple(row) for row in app.read("named").collect()) == [
            *(("Ann", 1), ("Ann", 1), ("Ann", 5), ("Bea", 1), ("Bea", 2)),
        ]
        with pytest.raises(UnknownView):
            app.drop("orders_kept")
        app.view("more", "SELECT count(*) n FROM other")
        with pytest.raises(ChangeFailed, match=r"could not be taken up \('more'\).*0.json"):
            app.run(until="caught_up")


def test_kept_rows_take_nobodys_name(spark: SparkSession, tmp_path: Path) -> None:
    with sl.App("shop", store=tmp_path, spark=spark, shards=1) as app:
        app.source("t", sl.memory("k string"))
        app.view("s_kept", "SELECT k FROM t")
        with pytest.raises(NameTaken, match="there is a view named 's_kept' already"):
            app.source("s", sl.memory("k string"), keep=True)
        app.source("s", sl.memory("k string"))  # its name was not taken
        app.source("u", sl.memory("k string"), keep=True)
        with pytest.raises(
            NameTaken, match="there is a view of the kept rows of a source named 'u_kept' already"
        ):
            app.view("u_kept", "SELECT k FROM t", replace=True)
