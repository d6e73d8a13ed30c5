"""The catalog, as it is read: every trace that it names is one of the store's."""

from __future__ import annotations

import pytest

from slipstream.core.errors import BadTraceName
from slipstream.store.catalog import Catalog, Generation, HeldSince, ViewEntry

OUTSIDE = ["traces/../../other", "/etc/passwd", "traces/v/..", "sources/v/t", "traces/v"]
CATALOG = Catalog(
    views={
        "v": ViewEntry(
            schema={},
            fingerprint="f",
            contents={"trace": "traces/v/now"},
            traces=("traces/v/now", "traces/v/kept"),
            since=3,
            past=(Generation(0, 2, {}, {"trace": "traces/v/was"}),),
        )
    },
    held={
        "h": ViewEntry(
            schema={},
            fingerprint="f",
            contents={"trace": "traces/h/now"},
            traces=(),
            since=2,
            past=(Generation(0, 1, {}, {"trace": "traces/h/was"}, last=1),),
            held=HeldSince(4, "it fails"),
            last=4,
        )
    },
)


def test_a_catalog_comes_back_as_it_was() -> None:
    assert Catalog.decode(CATALOG.encode()) == CATALOG
    assert CATALOG.past_traces() == ["traces/h/now", "traces/h/was", "traces/v/was"]


@pytest.mark.parametrize("name", OUTSIDE)
@pytest.mark.parametrize("kind", ["views", "held"])
@pytest.mark.parametrize("which", ["now", "past"])
def test_a_name_that_leads_elsewhere_is_refused(name: str, kind: str, which: str) -> None:
    body = CATALOG.encode()
    (view,) = body[kind].values()
    (view if which == "now" else view["past"][0])["contents"]["trace"] = name
    with pytest.raises(BadTraceName):
        Catalog.decode(body)


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_name_that_is_kept_and_leads_elsewhere_is_refused(name: str) -> None:
    body = CATALOG.encode()
    body["views"]["v"]["traces"][1] = name
    with pytest.raises(BadTraceName):
        Catalog.decode(body)
