"""Many small files of text are read as lines: the same rows as Spark reads from the files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slipstream.sources import bundle, files
from slipstream.sources.bundle import is_bundle, lines_of

Attach = Callable[..., Any]
Put = Callable[..., Path]
Rows = Callable[..., list[tuple[Any, ...]]]

CONTENTS = {
    "json": [
        '{"id": 1, "s": "x"}\n{"id": 2, "s": "é"}',
        "\n",
        '{"id": "bad"}\r\n{"s": "y", "id": 3}\r\n\r\n',
        '[{"id": 4}, {"id": 5, "s": "z"}]\n',
        '{"id": 6, "s": null}\nnot json\n"text"\n{"id": 7, "more": [1, {"s": "deep"}]}\n',
    ],
    "csv": ["id,s\n1,x\n2,é", "id,s\n", '\nid,s\n3,"a,b"\n\n4,\'\n', "id,s\nbad,y\n5\n6,7,8\n", 'id,s\n9,"'],
    "text": ["one\ntwo", "\n", "three\r\n\r\nfour\rfive\n", "é\n"],
}
SCHEMAS = {"json": "id long, s string", "csv": "id long, s string", "text": "value string"}


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Three files are many."""
    monkeypatch.setattr(bundle, "MANY", 3)
    return monkeypatch


@pytest.mark.spark
@pytest.mark.parametrize("format_", CONTENTS)
def test_lines_are_the_rows_that_spark_reads_from_the_files(
    landing: Path, attach: Attach, put: Put, rows: Rows, few: pytest.MonkeyPatch, format_: str
) -> None:
    for number, text in enumerate(CONTENTS[format_]):
        put(f"{number}.{format_}", text)
    options = {"header": "true"} if format_ == "csv" else None
    source = attach(files(landing, format_, SCHEMAS[format_], options=options))
    range_ = source.cut(None).range
    bundled = source.frame(range_)
    assert f"] {format_}\n" not in bundled._jdf.queryExecution().analyzed().toString(), "no scan of files"
    few.setattr(bundle, "MANY", 1000)
    assert rows(bundled) == rows(source.frame(range_))


@pytest.mark.spark
def test_rows_of_a_key_are_in_the_order_of_the_files(
    landing: Path, attach: Attach, put: Put, few: pytest.MonkeyPatch
) -> None:
    for second, name in enumerate(("c", "a", "d", "b")):
        put(name, "".join(f'{{"k": 1, "v": "{name}{i}"}}\n' for i in range(50)), 1_700_000_000 + second)
    source = attach(files(landing, "json", "k long, v string", key="k"))
    frame = source.frame(source.cut(None).range)
    assert [field.dataType for field in frame.schema.fields if "order" in field.name] == [
        field.dataType for field in source.order_fields
    ]
    ordered = frame.orderBy(*(name for name in frame.columns if "order" in name)).collect()
    assert [row.v for row in ordered] == [f"{name}{i}" for name in "cadb" for i in range(50)]


@pytest.mark.spark
def test_a_row_that_is_rejected_is_found_in_its_file(
    landing: Path, attach: Attach, put: Put, rows: Rows, few: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        put(f"{number}.json", '{"id": 1}\n' + ("nonsense\n" if number == 2 else ""))
    source = attach(files(landing, "json", "id long"))
    range_ = source.cut(None).range
    assert source.frame(range_).where("_slipstream_bad IS NOT NULL").count() == 1
    assert rows(source.rejected(range_), "file", "line") == [(str(landing / "2.json"), 2)]


@pytest.mark.spark
def test_a_mark_of_the_byte_order_on_any_line_is_passed_over_as_spark_does(
    landing: Path, attach: Attach, put: Put, rows: Rows, few: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        put(f"{number}.json", f'{{"id": {number}}}\n' + ('\ufeff{"id": 9}\n' if number == 2 else ""))
    source = attach(files(landing, "json", "id long"))
    frame = source.frame(source.cut(None).range)
    assert rows(frame) == [(0, None), (1, None), (2, None), (3, None), (9, None)]


def test_what_spark_might_take_in_another_way_is_left_to_it(tmp_path: Path) -> None:
    sizes = [10] * bundle.MANY
    assert is_bundle(sizes, {"timestampFormat": "y"})
    assert not is_bundle(sizes[1:], {})
    assert not is_bundle([*sizes, bundle.SMALL + 1], {})
    assert not is_bundle(sizes, {"multiLine": "true"})
    for name, data in {
        "latin": b"caf\xe9\n",
        "mark": b"\xef\xbb\xbfa\n",
        "mark on a later line": b"a\n\xef\xbb\xbfb\n",
        "wide": "a\n".encode("utf-16"),
        "zipped.gz": b"a\n",
    }.items():
        (tmp_path / name).write_bytes(data)
        assert lines_of([str(tmp_path / name)], header=False) is None
