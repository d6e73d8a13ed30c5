"""Input that is gone before its epoch was computed."""

from __future__ import annotations

from typing import Any

from slipstream.epoch.gone import Shortened, shortened
from slipstream.store.history import History, history_of
from slipstream.store.records import Began, Computed, Cut


class Listed:
    """A source whose ranges are lists of names, some of which are gone."""

    def __init__(self, *gone: str) -> None:
        self.gone = gone

    def left(self, range: Any) -> tuple[Any | None, tuple[str, ...]]:  # noqa: A002
        left = [each for each in range if each not in self.gone]
        return left or None, tuple(each for each in range if each in self.gone)


def pending() -> History:
    return history_of(
        [
            Began(incarnation=1, after=0, upto=0, app="a"),
            Cut(1, 1.0, {"a": ["x"]}),
            Computed(1, 1.0, 0.1, 1),
            Cut(2, 2.0, {"a": ["y", "z"], "b": ["p"]}),
            Cut(3, 3.0, {"b": ["q"]}),
        ]
    )


def test_where_all_input_is_there_nothing_changes() -> None:
    assert shortened(pending().pending, {"a": Listed(), "b": Listed()}) is None
    assert shortened(pending().pending, {"a": Listed("x")}) is None, "its epoch is computed"


def test_what_is_gone_is_left_out_and_told() -> None:
    history = pending()
    found = shortened(history.pending, {"a": Listed("y"), "b": Listed("q")})
    assert found == Shortened(
        (Cut(2, 2.0, {"a": ["z"], "b": ["p"]}), Cut(3, 3.0, {})), {"a": ("y",), "b": ("q",)}
    )
    assert found.epochs == "epochs 2, 3"
    assert found.told == "source 'a': y; source 'b': q"
    for cut in found.cuts:
        history = history.after(cut)
    assert history.pending == found.cuts
    assert history.taken("a") == [["x"], ["z"]]


def test_what_several_epochs_lack_of_a_source_is_told_together() -> None:
    found = shortened([Cut(1, 1.0, {"a": ["x"]}), Cut(2, 2.0, {"a": ["y"]})], {"a": Listed("x", "y")})
    assert found is not None
    assert (found.gone, found.told) == ({"a": ("x", "y")}, "source 'a': x, y")


def test_only_a_few_names_are_told() -> None:
    names = [f"f{i:02}" for i in range(13)]
    found = shortened([Cut(1, 1.0, {"a": names})], {"a": Listed(*names)})
    assert found is not None
    assert found.epochs == "epoch 1"
    assert found.told == f"source 'a': {', '.join(names[:10])} and 3 more"
