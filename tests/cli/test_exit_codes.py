"""What the command's exit codes mean, as docs/command.md tells it; without Spark."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from slipstream.cli.commands import main
from slipstream.testing.pretend import BAG, Pretend

Code = Callable[..., int]
FINE, REFUSED, FOUND, INTERRUPTED = 0, 1, 2, 130


@pytest.fixture
def store(tmp_path: Path) -> Path:
    engine = Pretend.start(tmp_path / "store", f"file://{tmp_path}/replica")
    engine.agent(f"file://{tmp_path}/replica").all(engine.run(3))
    engine.close()
    return tmp_path / "store"


@pytest.fixture
def code(monkeypatch: pytest.MonkeyPatch) -> Code:
    def run(*arguments: object) -> int:
        monkeypatch.setattr(sys, "argv", ["slipstream", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0)

    return run


def test_fine(store: Path, tmp_path: Path, code: Code, capsys: pytest.CaptureFixture[str]) -> None:
    assert code("--version") == FINE
    assert code("status", store) == FINE
    assert code("fsck", store) == FINE
    assert code("fsck", f"file://{tmp_path}/replica") == FINE
    assert code("recover", "--plan", store) == FINE
    assert "whether the app's queries are still those" in capsys.readouterr().out
    assert code("recover", store, "--from", f"file://{tmp_path}/replica", "--to", tmp_path / "new") == FINE


@pytest.mark.parametrize("command", [["status"], ["fsck"], ["fsck", "--repair"], ["recover", "--plan"]])
def test_a_path_that_is_no_store_is_named_as_what_it_is(
    command: list[str], tmp_path: Path, code: Code, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to("away")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "within").symlink_to("away")
    said = {
        "other": "it has no format.json",
        "empty": "it has no format.json",
        "file": "it is a file",
        "link": "it is a link to 'away', which is not there",
        "nothing": "there is no such folder",
    }
    for name, because in said.items():
        assert code(*command, tmp_path / name) == REFUSED
        told = capsys.readouterr()
        assert told.out == ""
        assert told.err.startswith(
            f"error: '{tmp_path / name}' is not a Slipstream store: {because}. Give the"
        )


def test_the_folder_of_a_replica_is_checked_as_one(
    store: Path, tmp_path: Path, code: Code, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "the other replica"
    (tmp_path / "replica").rename(folder)
    assert code("fsck", folder) == FINE
    told = capsys.readouterr().out
    assert "objects: sound" in told
    assert "nobody's" not in told
    assert code("fsck", folder, "--repair") == FOUND
    assert "a replica is repaired by the running app" in capsys.readouterr().err
    (folder / "owner.json").unlink()
    assert code("fsck", folder) == FOUND
    assert "owner.json: it is missing" in capsys.readouterr().out


def test_a_file_in_the_place_of_a_store_is_no_new_app(
    tmp_path: Path, code: Code, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to("away")
    for name, said in (("file", "is a file, and a store is a folder"), ("link", "is a link to 'away'")):
        app = tmp_path / f"{name}.py"
        app.write_text(f"import slipstream as sl\napp = sl.App('shop', store={str(tmp_path / name)!r})\n")
        assert code("recover", "--plan", app) == REFUSED
        told = capsys.readouterr()
        assert told.out == ""
        assert told.err.startswith(f"error: '{tmp_path / name}' {said}")


def test_a_plan_says_what_a_start_would_do(
    store: Path, tmp_path: Path, code: Code, capsys: pytest.CaptureFixture[str]
) -> None:
    def told() -> list[str]:
        assert code("recover", "--plan", store, "--from", f"file://{tmp_path}/replica") == FINE
        return capsys.readouterr().out.splitlines()

    assert "A start would go on after epoch 3: all of it is there." in told()
    assert "expected: at once, once Spark has started" in told()
    for layer in (store / BAG).glob("*.arrow"):
        layer.unlink()
    (does,) = [line for line in told() if line.startswith("A start would")]
    assert does.startswith("A start would fetch what is missing from replicas, and go on after epoch 3. ")
    assert does.endswith("KB would be fetched.")
    shutil.rmtree(store)
    (does,) = [line for line in told() if line.startswith("A start would")]
    assert does.startswith("A start would restore the store from replicas, as of epoch 3. ")
    url = f"file://{tmp_path}/replica"
    assert f"- it would say: the store was restored from {url}, as of epoch 3" in told()
    engine = Pretend.start(tmp_path / "alone")
    engine.run(3)
    engine.close()
    for layer in (tmp_path / "alone" / BAG).glob("*-0000000003-*.arrow"):
        layer.unlink()
    assert code("recover", "--plan", tmp_path / "alone") == FINE
    assert (
        "A start would step back to epoch 2, the last that is whole. 1 epoch would be computed again, as cut."
        in capsys.readouterr().out.splitlines()
    )


def test_a_plan_says_what_was_not_read(
    store: Path, tmp_path: Path, code: Code, capsys: pytest.CaptureFixture[str]
) -> None:
    assert code("recover", "--plan", store) == FINE
    assert "not looked at: the bytes of layers that were flushed" in capsys.readouterr().out


def test_a_replica_without_a_scheme_is_quoted_as_it_was_given(
    store: Path, tmp_path: Path, code: Code, capsys: pytest.CaptureFixture[str]
) -> None:
    code("recover", store, "--from", "/nope", "--to", tmp_path / "new")
    told = capsys.readouterr()
    assert "'/nope'" in told.err
    assert ":///nope" not in told.out + told.err


def test_refused_is_one_message_and_nothing_else(
    store: Path, tmp_path: Path, code: Code, capsys: pytest.CaptureFixture[str]
) -> None:
    assert code("status", tmp_path / "nothing") == REFUSED
    assert code("fsck", tmp_path / "nothing") == REFUSED
    assert code("recover", store, "--from", f"file://{tmp_path}/none", "--to", tmp_path / "new") == REFUSED
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("error:") == 3
    assert "Traceback" not in said.err


def test_found(store: Path, tmp_path: Path, code: Code, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(store / BAG)
    assert code("fsck", store) == FOUND
    for path in (tmp_path / "replica" / "data").iterdir():
        path.write_bytes(b"")
    assert code("fsck", f"file://{tmp_path}/replica") == FOUND
    assert code("recover", "--plan", store) == FOUND
    said = capsys.readouterr()
    assert (said.err, said.out.count("A start would refuse.")) == ("", 1)


def test_arguments_that_make_no_sense(store: Path, code: Code, capsys: pytest.CaptureFixture[str]) -> None:
    assert code("recover", store) == FOUND
    assert code("fsck", store, "--reapir") == FOUND
    said = capsys.readouterr()
    assert said.out == ""
    assert "Usage" in said.err


def test_ctrl_c(store: Path) -> None:
    (store / "format.json").unlink()
    os.mkfifo(store / "format.json")
    process = subprocess.Popen(
        [sys.executable, "-m", "slipstream.cli", "fsck", str(store)], stderr=subprocess.PIPE, text=True
    )
    with (store / "format.json").open("w"):  # it reads
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=120)
    assert process.returncode == INTERRUPTED, said
    assert "Traceback" not in said
