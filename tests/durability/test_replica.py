"""Which addresses can be a replica."""

from __future__ import annotations

from pathlib import Path

import pytest

import slipstream as sl
from slipstream.core.errors import BadReplica
from slipstream.durability.replica import check_apart


@pytest.mark.parametrize("inside", ["", "/replica", "/traces/v"])
@pytest.mark.parametrize("scheme", ["file", "faulty+file"])
def test_a_folder_that_is_lost_with_the_store_is_no_replica(tmp_path: Path, scheme: str, inside: str) -> None:
    store = tmp_path / "store"
    with pytest.raises(BadReplica, match="would be lost with it"):
        sl.App("app", store=store, replicas=[f"{scheme}://{store}{inside}"])
    assert not store.exists(), "nothing is made"


def test_an_address_has_a_scheme(tmp_path: Path) -> None:
    with pytest.raises(BadReplica, match="replica 'relative/path': it has no scheme"):
        sl.App("app", store=tmp_path / "store", replicas=["relative/path"])


def test_a_folder_beside_the_store_or_above_it_is_one(tmp_path: Path) -> None:
    store = tmp_path / "store"
    check_apart(store, [f"file://{tmp_path}/a+b", f"file://{tmp_path}/store2?x=1", "s3://bucket/store"])
