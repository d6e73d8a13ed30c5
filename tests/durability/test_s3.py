"""A replica on a server that speaks S3's protocol, started by the test."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import boto3
import pytest

from slipstream.durability.agent import Agent
from slipstream.durability.board import Progress, read_replication
from slipstream.durability.fsck import check_replica
from slipstream.durability.replica import shown
from slipstream.testing.pretend import BAG, KEYED, Pretend, contents, eventually, expected


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"],
        stderr=subprocess.PIPE,
        text=True,
    )
    log = server.stderr
    assert log is not None
    drained = threading.Thread(target=log.read)  # a full pipe would stop the server
    try:
        found = next(match for line in log if (match := re.search(r"127\.0\.0\.1:(\d+)", line)))
        drained.start()
        yield f"127.0.0.1:{found[1]}"
    finally:
        server.kill()
        server.wait()
        if drained.ident is not None:
            drained.join()
        log.close()


@pytest.fixture
def url(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    client = boto3.client("s3", endpoint_url=f"http://{endpoint}", region_name="us-east-1")
    client.create_bucket(Bucket="bucket")
    return f"s3://bucket/shop?endpoint_override={endpoint}&scheme=http&region=us-east-1"


def test_a_store_lives_on_in_a_bucket(url: str, tmp_path: Path) -> None:
    engine = Pretend.on(tmp_path / "store")
    agent = Agent(engine.charge(url))

    def reached(epoch: int) -> bool:
        return read_replication(engine.store.disk).replicas.get(shown(url), Progress()).durable == epoch

    try:
        for _ in range(4):
            word = engine.run(3)
            agent.tell(word)
            assert eventually(partial(reached, word.computed)), read_replication(engine.store.disk)
    finally:
        agent.close()
        engine.close()
    assert check_replica(url).findings == ()
    shutil.rmtree(engine.root)
    again = Pretend.start(engine.root, url)
    again.close()
    assert again.epoch == 12
    for trace in (BAG, KEYED):
        assert contents(again.root, trace, 12) == expected(trace, 12)
