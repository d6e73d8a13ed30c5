from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.core.errors import BadTraceName
from slipstream.trace import LayerName, Span, checked_trace, places, shard_span

hashes = st.integers(-(2**63), 2**63 - 1)


@st.composite
def layer_names(draw: st.DrawFn) -> LayerName:
    lo = draw(st.integers(1, 10**12))
    start = draw(st.integers(0, 2**31 - 1))
    return LayerName(
        draw(st.integers(0, 10**8)),
        lo,
        lo + draw(st.integers(0, 10**12)),
        start,
        draw(st.integers(start + 1, 2**31)),
        draw(st.sampled_from(["log", "flat"])),
    )


@given(layer_names())
def test_name_survives_being_a_filename(name: LayerName) -> None:
    assert LayerName.parse(name.filename) == name


@pytest.mark.parametrize(
    "filename",
    [
        "",
        "readme.txt",
        ".000001-0000000001-0000000001-00000000-80000000.log.arrow.0a1b.tmp",
        "000001-0000000002-0000000001-00000000-80000000.log.arrow",  # ends before it begins
        "000001-0000000001-0000000001-00000000-80000001.log.arrow",  # past the last place
        "0000001-0000000001-0000000001-00000000-80000000.log.arrow",  # one name for one layer
        "000001-0000000001-0000000001-00000000-80000000.big.arrow",
    ],
)
def test_what_is_not_a_layer_does_not_parse(filename: str) -> None:
    assert LayerName.parse(filename) is None


@given(st.lists(hashes, min_size=1), st.integers(1, 5000))
def test_shard_spans_agree_with_the_routing_expression(values: list[int], shards: int) -> None:
    sorted_values = np.array(sorted(values), dtype=np.int64)
    for value, place in zip(sorted_values.tolist(), places(sorted_values).tolist(), strict=True):
        shard = (((value >> 33) + 1073741824) * shards) >> 31
        span = shard_span(shard, shards)
        assert span.start <= place < span.stop
        first, last = span.bounds(sorted_values)
        assert value in sorted_values[first:last].tolist()


@given(st.integers(1, 3000))
def test_shard_spans_tile_the_whole(shards: int) -> None:
    spans = [shard_span(i, shards) for i in range(shards)]
    assert spans[0].start == 0
    assert spans[-1].stop == Span.whole().stop
    assert all(a.stop == b.start for a, b in itertools.pairwise(spans))


def test_bad_spans_and_names_are_refused() -> None:
    with pytest.raises(ValueError, match="start < stop"):
        Span(3, 3)
    with pytest.raises(ValueError, match="does not exist"):
        shard_span(2, 2)
    with pytest.raises(ValueError, match="epochs from 1"):
        LayerName(1, 0, 1, 0, 1)


@pytest.mark.parametrize(
    "text",
    [
        "traces/orders/1-view",
        "traces/a.b-c@2/1-left",
        "traces/über_sales/_",
        "traces/a/-1",
        "traces/@a/1.2.3",
    ],
)
def test_a_trace_may_be_named_so(text: str) -> None:
    assert checked_trace(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "traces",
        "traces/a",
        "traces/a/",
        "traces//b",
        "traces/a/b/c",
        "traces/a/b/",
        "/traces/a/b",
        "other/a/b",
        "traces/../b",
        "traces/a/..",
        "traces/./b",
        "traces/.a/b",
        "traces/a/.b",
        "../traces/a/b",
        "traces/a/b\n",
        "traces/a b/c",
        "traces/a\\b/c",
        "traces/a\0/b",
        "traces/~/b",
    ],
)
def test_a_name_that_leads_elsewhere_is_refused(text: str) -> None:
    with pytest.raises(BadTraceName) as error:
        checked_trace(text)
    assert str(error.value) == (
        f"{text!r} cannot be the name of a trace: that is traces/VIEW/TRACE, of letters, digits and _ . @ -, and no "
        "dot at the beginning. Nothing was read or written there. The file that names it is damaged, or was not "
        "written by Slipstream: restore it from another copy."
    )
