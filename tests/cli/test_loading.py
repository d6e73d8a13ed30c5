"""A file is run to get its one app; whatever is wrong with it is one message that names the line. No JVM runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slipstream.app import App
from slipstream.cli.loading import MODULE, load_app, may_pass, only_app
from slipstream.core.errors import LoadFailed, NoApp, SeveralApps
from slipstream.plan.functions import digest


@pytest.fixture(autouse=True)
def _import_state() -> Iterator[None]:
    path = list(sys.path)
    yield
    sys.path[:] = path
    sys.modules.pop(MODULE, None)


def written(folder: Path, *lines: str) -> Path:
    file = folder / "shop.py"
    file.write_text("\n".join(lines))
    return file


def test_no_app(tmp_path: Path) -> None:
    file = written(tmp_path, "x = 1", "if __name__ == '__main__':", "    raise SystemExit")
    with pytest.raises(NoApp) as error:
        load_app(file)
    assert str(error.value) == (
        f"{file} declares no app. Declare one at the top level of the file, outside of any function and of "
        "`if __name__ == '__main__':`, such as: app = slipstream.App('shop', store='./shop')."
    )


@pytest.mark.parametrize(
    ("line", "passes"),
    [
        ("raise ConnectionRefusedError(111, 'Connection refused')", True),
        ("from py4j.protocol import Py4JNetworkError; raise Py4JNetworkError('gone')", True),
        ("from pyspark.errors import PySparkRuntimeError as E; raise E('', 'JAVA_GATEWAY_EXITED', {})", True),
        ("from slipstream.core.errors import StoreInUse; raise StoreInUse('shop', 'process 7')", True),
        ("1 / 0", False),
        ("raise FileNotFoundError('orders')", False),
    ],
)
def test_what_another_start_may_not_meet_again_is_no_fault_of_the_file(
    tmp_path: Path, line: str, passes: bool
) -> None:
    with pytest.raises(LoadFailed) as error:
        load_app(written(tmp_path, line))
    assert may_pass(error.value) is passes


def test_functions_of_the_file_are_compiled_as_python_would_compile_them(tmp_path: Path) -> None:
    """Else one would be taken for another function than in a program that is run by itself."""
    lines = ["def fee(cents: int):", "    return cents // 10"]
    with pytest.raises(NoApp):
        load_app(written(tmp_path, *lines))
    alone: dict[str, Any] = {}
    exec(compile("\n".join(lines), "shop.py", "exec", dont_inherit=True), alone)
    ours, plain = sys.modules[MODULE].fee, alone["fee"]
    assert ours.__code__.co_flags == plain.__code__.co_flags
    assert ours.__annotations__ == plain.__annotations__ == {"cents": int}
    assert digest(ours) == digest(plain)


def test_several_apps_are_refused_and_two_names_of_one_are_not() -> None:
    one, two = object.__new__(App), object.__new__(App)
    assert only_app(Path("shop.py"), {"app": one, "same": one, "other": 3}) is one
    with pytest.raises(SeveralApps) as error:
        only_app(Path("shop.py"), {"shop": one, "bank": two})
    assert str(error.value) == (
        "shop.py declares several apps: 'bank', 'shop'. The command runs one: give each a file of its own."
    )


@pytest.mark.parametrize("call", ["App.run(app)", "App.start(app)"])
def test_a_file_that_runs_its_app_is_refused(tmp_path: Path, call: str) -> None:
    own = App.run, App.start
    file = written(tmp_path, "from slipstream import App", "app = object.__new__(App)", call)
    with pytest.raises(LoadFailed) as error:
        load_app(file)
    assert str(error.value) == (
        f"{file}, line 3: the file runs its app while it is loaded, and the command is what runs it. Put that "
        "under `if __name__ == '__main__':`, or run the file with `python`."
    )
    assert (App.run, App.start) == own


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["x = 1", "y = z"], "line 2: NameError: name 'z' is not defined"),
        (["x = 1", "", "y = ("], "line 3: SyntaxError: '(' was never closed"),
        (
            ["from slipstream.core.errors import BadName", "def f():", "    raise BadName('1')", "f()"],
            "line 3: '1' cannot name a source or view. Use letters, digits and underscores, starting with a letter.",
        ),
    ],
)
def test_what_fails_is_told_with_its_line(tmp_path: Path, lines: list[str], said: str) -> None:
    file = written(tmp_path, *lines)
    with pytest.raises(LoadFailed) as error:
        load_app(file)
    assert str(error.value) == f"{file}, {said}"


def test_the_file_finds_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "neighbour_of_shop.py").write_text("x = 1")
    with pytest.raises(NoApp):
        load_app(written(tmp_path, "import neighbour_of_shop"))
    del sys.modules["neighbour_of_shop"]
