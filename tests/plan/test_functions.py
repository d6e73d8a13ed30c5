"""Digests of Python functions: the same text is the same digest, in whatever process; other code is another one."""

from __future__ import annotations

import functools
import re
import subprocess
import sys
import sysconfig
import threading
import types
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql import Row

from slipstream.plan.functions import digest, load

PROGRAM = '''
import math, re
from dataclasses import dataclass
from decimal import Decimal

RATES = {"a": 1.5, "b": Decimal("2.5")}
NAMES = {"north", "south", "east", "west", "up", "down"}
WORD = re.compile("[a-z]+", re.I)

@dataclass
class Tariff:
    base: int
    def of(self, cents):
        return cents // self.base

def helper(cents, depth=2):
    return helper(cents - 1, depth - 1) if depth else math.floor(cents)

def made(rate):
    tariff = Tariff(rate)
    def fee(cents, *, least=1):
        """What is charged."""
        inside = lambda each: each in NAMES or WORD.match(each)
        try:
            return max(helper(tariff.of(cents)), least) + RATES["a"] + len([x for x in "ab" if inside(x)])
        except ZeroDivisionError:
            return 0
    return fee

fee = made(10)
'''


def defined(text: str, file: str = "program.py") -> dict[str, Any]:
    """The names that a program defines."""
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(dedent(text), file, "exec"), names)
    return names


def digest_of(text: str, name: str = "fee", **options: Any) -> str:
    return digest(defined(text, **options)[name])


def test_the_same_text_has_the_same_digest_wherever_it_stands() -> None:
    first = digest_of(PROGRAM)
    assert digest_of("\n\n\n" + PROGRAM, file="elsewhere.py") == first
    assert digest_of(PROGRAM.replace("What is charged.", "What it costs.")) == first
    assert digest_of(PROGRAM.replace("(cents, *,", "(cents: int, *,")) == first
    assert digest_of(PROGRAM + "\nunused = 1\n") == first


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("max(helper", "min(helper"),
        ("return 0", "return 1"),
        ("least=1", "least=2"),
        ("made(10)", "made(5)"),
        ("depth=2", "depth=3"),
        ("cents - 1", "cents - 2"),
        ("cents // self.base", "cents / self.base"),
        ('"a": 1.5', '"a": 1.25'),
        ('"2.5"', '"2.50"'),
        ('"up", ', ""),
        ('"[a-z]+"', '"[a-y]+"'),
        ("re.I", "re.A"),
        ("math.floor", "math.ceil"),
        ("ZeroDivisionError", "ValueError"),
        ("or WORD.match", "and WORD.match"),
    ],
)
def test_changed_code_constants_closures_and_globals_change_the_digest(old: str, new: str) -> None:
    assert old in PROGRAM
    assert digest_of(PROGRAM.replace(old, new)) != digest_of(PROGRAM)


def test_a_docstring_that_is_used_as_a_value_counts() -> None:
    assert digest_of('def fee(x): "a"; return "a"') != digest_of('def fee(x): "b"; return "b"')


def test_values_of_different_types_are_told_apart() -> None:
    texts = [
        f"def fee(x, y={each}): return y"
        for each in ("1", "1.0", "True", "'1'", "b'1'", "None", "(1,)", "[1]")
    ]
    assert len({digest_of(text) for text in texts}) == len(texts)
    assert digest_of("def fee(x, y=0.0): return y") != digest_of("def fee(x, y=-0.0): return y")


IN_A_PROCESS = """
import sys
from slipstream.plan.functions import digest, load
from pyspark import cloudpickle
from pyspark.sql import Row
exec(compile(open(sys.argv[1]).read(), sys.argv[1], "exec"))
print(digest(load(cloudpickle.dumps((fee, None)), {})))
"""


def test_two_processes_agree_and_so_does_what_was_pickled(tmp_path: Path) -> None:
    """Strings hash differently in each process, and with them the order of sets."""
    found = set()
    for number in range(2):
        file = tmp_path / f"program{number}.py"
        file.write_text("# a line more\n" * number + PROGRAM)
        ran = subprocess.run(
            [sys.executable, "-c", IN_A_PROCESS, str(file)],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONPATH": ":".join(sys.path), "PYTHONHASHSEED": str(number)},
        )
        found.add(ran.stdout.strip())
    assert len(found) == 1


def in_module(name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    module = types.ModuleType(name)
    exec(compile(dedent(text), f"{name}.py", "exec"), vars(module))
    monkeypatch.setitem(sys.modules, name, module)
    return module


@pytest.mark.parametrize("how", ["from tariffs import charge", "import tariffs"])
def test_code_of_other_modules_of_the_program_counts(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    called = "charge" if how.startswith("from") else "tariffs.charge"
    text = f"{how}\ndef fee(x): return {called}(x)"
    found: list[str] = []
    for body in ("return x // 10", "return x // 5", "return x // 10"):
        in_module("tariffs", f"def charge(x): {body}\ndef other(x): {len(found)}", monkeypatch)
        found.append(digest_of(text))
    assert found[0] == found[2] != found[1]


def test_a_library_is_known_by_its_names(monkeypatch: pytest.MonkeyPatch) -> None:
    found = set()
    for body in ("return x // 10", "return x // 5"):
        text = f"__file__ = {sysconfig.get_path('purelib') + '/tariffs.py'!r}\ndef charge(x): {body}"
        in_module("tariffs", text, monkeypatch)
        found.add(digest_of("from tariffs import charge\ndef fee(x): return charge(x)"))
        own = sys.modules["tariffs"].charge
        found.add(digest(own))
    assert len(found) == 3, "but a function that is itself of an installed package is known by its code"
    text = "import numpy as np\nfrom numpy import {0}\ndef fee(x): return {0}(x) + np.abs(x)"
    assert digest_of(text.format("median")) == digest_of(text.format("median"))
    assert digest_of(text.format("median")) != digest_of(text.format("average"))


def test_what_closures_may_hold() -> None:
    import numpy as np
    import pandas as pd

    def holding(value: Any) -> Callable[[int], Any]:
        return lambda x: (x, value)

    def values(n: int) -> list[Any]:
        itself: list[Any] = [n]
        itself.append(itself)
        return [
            np.arange(n),
            pd.DataFrame({"a": [n]}),
            itself,
            functools.partial(int, base=n),
            functools.lru_cache(holding(n)),
            re.compile(str(n)),
            [1, n].count,
            types.SimpleNamespace(n=n),
            Row(n=n),
            defined(f"class Shape:\n  n = {n}\n  @property\n  def side(self): return {n}")["Shape"],
            defined(f"import enum\nclass Size(enum.Enum):\n  S = {n}")["Size"].S,
        ]

    for one, same, other in zip(values(2), values(2), values(3), strict=True):
        assert digest(holding(one)) == digest(holding(same)), one
        assert digest(holding(one)) != digest(holding(other)), one
    locks = [threading.Lock(), threading.Lock()]
    assert digest(holding(locks[0])) == digest(holding(locks[1])), "no address is part of it"


def test_functions_that_call_each_other_end() -> None:
    text = "def odd(n): return n and even(n - 1)\ndef even(n): return not n or odd(n - 1)\nfee = odd"
    assert digest_of(text) == digest_of(text)
    assert digest_of(text) != digest_of(text.replace("n - 1", "n - 2"))


def test_a_function_is_loaded_without_its_type() -> None:
    pickled: Any = cloudpickle.dumps
    loaded = load(pickled((lambda x: x + 1, "long")), {})
    assert loaded(1) == 2
    assert load(pickled(len), {}) is len
