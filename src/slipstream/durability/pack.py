"""Layers as Parquet, and back.

Layers of one schema go into one object, one after another; each of a layer's parts is a row group, so that a layer
comes back with the parts that it had. The rows, their order and their types are what they were; Arrow's own schema
travels in the file. Pages carry checksums. Any tool that reads Parquet can read it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from slipstream.durability.manifest import Kept, Stored
from slipstream.trace import Layer, LayerName, write_layer

_CHUNK = 1 << 22


Held = tuple[str, Layer]
"""A trace and one of its layers, mapped: it stays readable even if it is removed."""


def by_schema(layers: Iterable[Held]) -> list[list[Held]]:
    """Layers that can share an object."""
    groups: dict[bytes, list[Held]] = {}
    for trace, layer in layers:
        groups.setdefault(layer.schema.serialize().to_pybytes(), []).append((trace, layer))
    return list(groups.values())


def pack(layers: Sequence[Held], name: str, to: Path) -> tuple[Stored | None, dict[str, list[Kept]]]:
    """Write layers of one schema to a file that is to become the object `name`; no file if all are empty."""
    kept: dict[str, list[Kept]] = {}
    filled = [held for held in layers if held[1].parts]
    for trace, layer in layers:
        if not layer.parts:
            kept.setdefault(trace, []).append(Kept(layer.name, 0, layer.bytes, digest=layer.digest))
    if not filled:
        return None, kept
    at = 0
    with pq.ParquetWriter(
        to,
        filled[0][1].schema,
        compression="zstd",
        compression_level=1,
        use_dictionary=False,
        write_statistics=False,
        write_page_checksum=True,
    ) as writer:
        for trace, layer in filled:
            for part in layer.parts:
                writer.write_table(pa.Table.from_batches([part.batch]), row_group_size=part.rows)
            kept.setdefault(trace, []).append(
                Kept(
                    layer=layer.name,
                    rows=layer.rows,
                    bytes=layer.bytes,
                    object=name,
                    first=at,
                    groups=len(layer.parts),
                    digest=layer.digest,
                )
            )
            at += len(layer.parts)
    return Stored(name, to.stat().st_size, sha256(to)), kept


def unpack(
    file: Path | pa.NativeFile | None,
    kept: Kept,
    schema: pa.Schema,
    directory: Path,
    name: LayerName,
    *,
    flushed: bool,
) -> int:
    """Write a layer out of an object's file (None for an empty layer) to a trace's directory, under a name; its size in
    bytes.
    """
    if file is None:
        return write_layer(directory, name, schema, (), flushed=flushed)
    with pq.ParquetFile(file, page_checksum_verification=True, pre_buffer=True) as reader:
        groups = (reader.read_row_group(i) for i in range(kept.first, kept.first + kept.groups))
        return write_layer(directory, name, schema, _batches(groups, schema), flushed=flushed)


def encode_schema(schema: pa.Schema) -> str:
    return str(schema.serialize().to_pybytes().hex())


def decode_schema(said: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(said)))


def sha256(file: Path) -> str:
    """The checksum of a file."""
    digest = hashlib.sha256()
    with file.open("rb") as read:
        while chunk := read.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _batches(tables: Iterable[pa.Table], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Tables as batches in exactly this schema: Parquet adds notes of its own to the fields."""
    for table in tables:
        arrays = [column.combine_chunks() for column in table.columns]
        yield from pa.Table.from_arrays(arrays, schema=schema).to_batches()
