"""What the digest of a function has of the program's modules: each case is a program on disk, of which one line is
changed. The digests are taken in another process, as a start of the app would take them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent
from typing import NamedTuple

import pytest

DIGESTS = """
import json, os, sys, traceback
from slipstream.plan.functions import digest, load
from pyspark import cloudpickle

def found(folder):
    sys.path.insert(0, folder)
    names = sys.modules["__main__"].__dict__
    exec(compile(open(folder + "/program.py").read(), folder + "/program.py", "exec"), names)
    digests = []
    for _ in range(2):
        digests.append(digest(load(cloudpickle.dumps((names["fee"], None)), {})))
        names["fee"](3)
    assert digests[0] == digests[1], "what is loaded by then makes no difference"
    return digests[0]

for folder in sys.argv[1:]:
    reading, writing = os.pipe()
    child = os.fork()
    if not child:  # so that no program has the modules of another
        try:
            os.write(writing, found(folder).encode())
        except BaseException:
            os.write(writing, traceback.format_exc()[-1000:].encode())
        os._exit(0)
    os.close(writing)
    print(json.dumps([folder, os.read(reading, 1000).decode()]))
    os.waitpid(child, 0)
"""


class Case(NamedTuple):
    """The files of a program with a function `fee` in program.py, and what is changed, by default in helpers.py."""

    program: str
    files: Mapping[str, str] = {}
    old: str = "RATE = 10"
    new: str = "RATE = 5"


HELPERS = '''
"""Helpers."""
RATE = 10  # a rate

class Tariff:
    """A tariff."""
    def of(self, x):
        return x // RATE

def charge(x: int) -> int:
    """What is charged."""
    return x // RATE

def unrelated(x):
    return x + 100
'''
PACKAGE = {
    "pkg/__init__.py": "",
    "pkg/helpers.py": HELPERS,
    "pkg/inner/__init__.py": "",
    "pkg/inner/deep.py": "from ..helpers import charge\ndef deep(x): return charge(x)",
}

CHANGED = {
    "a dotted path": Case("import pkg.helpers\ndef fee(x): return pkg.helpers.charge(x)", PACKAGE),
    "a longer dotted path": Case("import pkg.inner.deep\ndef fee(x): return pkg.inner.deep.deep(x)", PACKAGE),
    "an alias of a dotted path": Case("import pkg.helpers as h\ndef fee(x): return h.charge(x)", PACKAGE),
    "a module of a package": Case("from pkg import helpers\ndef fee(x): return helpers.charge(x)", PACKAGE),
    "a name imported inside": Case("def fee(x):\n  from helpers import charge\n  return charge(x)"),
    "a name imported inside, with another name": Case(
        "def fee(x):\n  from helpers import charge as c\n  return c(x)"
    ),
    "a module imported inside": Case("def fee(x):\n  import helpers\n  return helpers.charge(x)"),
    "a module imported inside with another name": Case(
        "def fee(x):\n  import pkg.helpers as h\n  return h.charge(x)", PACKAGE
    ),
    "a dotted module imported inside": Case(
        "def fee(x):\n  import pkg.helpers\n  return pkg.helpers.charge(x)", PACKAGE
    ),
    "a module of a package imported inside": Case(
        "def fee(x):\n  from pkg import helpers\n  return helpers.charge(x)", PACKAGE
    ),
    "an import inside an inner function": Case(
        "def fee(x):\n  def inner(y):\n    from helpers import charge\n    return charge(y)\n  return inner(x)"
    ),
    "an import inside for an inner function": Case(
        "def fee(x):\n  import helpers\n  return [(lambda z: helpers.charge(z))(y) for y in [x]]"
    ),
    "an import inside that is relative": Case(
        "from pkg.own import fee",
        {**PACKAGE, "pkg/own.py": "def fee(x):\n  from .helpers import charge\n  return charge(x)"},
    ),
    "an import inside that is relative to the package above": Case(
        "from pkg.inner.own import fee",
        {**PACKAGE, "pkg/inner/own.py": "def fee(x):\n  from .. import helpers\n  return helpers.charge(x)"},
    ),
    "an import inside of what imports in turn": Case(
        "def fee(x):\n  from outer import outer\n  return outer(x)",
        {"outer.py": "import helpers as h\ndef outer(x): return h.charge(x)"},
    ),
    "an import inside of what imports inside": Case(
        "def fee(x):\n  from outer import outer\n  return outer(x)",
        {"outer.py": "def outer(x):\n  from helpers import Tariff\n  return Tariff().of(x)"},
    ),
    "an import inside of what a package hands on": Case(
        "def fee(x):\n  import pkg\n  return pkg.charge(x)",
        {**PACKAGE, "pkg/__init__.py": "from .helpers import charge"},
    ),
    "an import inside of all names": Case(
        "def fee(x):\n  from outer import charge\n  return charge(x)", {"outer.py": "from helpers import *"}
    ),
    "an import inside of a class with a base": Case(
        "def fee(x):\n  from outer import Flat\n  return Flat().of(x)",
        {"outer.py": "from helpers import Tariff\nclass Flat(Tariff):\n  pass"},
    ),
    "a registry that is filled by a decorator": Case(
        "def fee(x):\n  from registry import KNOWN\n  import helped\n  return KNOWN['charge'](x)",
        {
            "registry.py": "KNOWN = {}\ndef known(f):\n  KNOWN[f.__name__] = f\n  return f",
            "helped.py": "import registry, helpers\n@registry.known\ndef charge(x): return helpers.charge(x)",
        },
    ),
    "a helper's module": Case(
        "import outer\ndef fee(x): return outer.outer(x)",
        {"outer.py": "import helpers\ndef outer(x): return helpers.charge(x)"},
    ),
    "a module that a helper's module holds": Case(
        "import outer\ndef fee(x): return outer.helpers.charge(x)", {"outer.py": "import helpers"}
    ),
    "a module in a closure": Case(
        "import helpers\ndef made(h):\n  def fee(x): return h.charge(x)\n  return fee\nfee = made(helpers)"
    ),
    "a module in a default": Case("import helpers\ndef fee(x, h=helpers): return h.charge(x)"),
    "a module in a default that is named": Case(
        "import helpers\ndef fee(x, *, h=helpers): return h.charge(x)"
    ),
    "a module in a container": Case(
        "import helpers\nHELD = {'h': helpers}\ndef fee(x): return HELD['h'].charge(x)"
    ),
    "a module in an attribute of an object": Case(
        "import helpers\nclass Held:\n  def __init__(self): self.h = helpers\n  def __call__(self, x): return "
        "self.h.charge(x)\nfee = Held()"
    ),
    "a module in an attribute of a class": Case(
        "import helpers\nclass Held:\n  h = helpers\ndef fee(x): return Held.h.charge(x)"
    ),
    "a module under another name": Case("import helpers\ndef fee(x):\n  h = helpers\n  return h.charge(x)"),
    "a module handed to a function": Case(
        "import helpers\ndef by(h, x): return h.charge(x)\ndef fee(x): return by(helpers, x)"
    ),
    "getattr": Case("import helpers\ndef fee(x): return getattr(helpers, 'charge')(x)"),
    "getattr of a name": Case(
        "import helpers\nNAME = 'charge'\ndef fee(x): return getattr(helpers, NAME)(x)"
    ),
    "import_module": Case(
        "import importlib\ndef fee(x): return importlib.import_module('helpers').charge(x)"
    ),
    "import_module of a constant": Case(
        "from importlib import import_module\nNAME = 'pkg.helpers'\ndef fee(x): return import_module(NAME).charge(x)",
        PACKAGE,
    ),
    "import_module in a package": Case(
        "from importlib import import_module\n"
        "def fee(x, name='helpers'): return import_module(f'pkg.{name}').charge(x)",
        PACKAGE,
    ),
    "__import__": Case("def fee(x): return __import__('helpers').charge(x)"),
    "sys.modules": Case("import sys, helpers\ndef fee(x): return sys.modules['helpers'].charge(x)"),
    "import_module inside what is imported inside": Case(
        "def fee(x):\n  from outer import outer\n  return outer(x)",
        {
            "outer.py": "import importlib\nNAME = 'helpers'\n"
            "def outer(x): return importlib.import_module(NAME).charge(x)"
        },
    ),
    "a module that makes its names": Case(
        "def fee(x):\n  from outer import charge\n  return charge(x)",
        {"outer.py": "import helpers\ndef __getattr__(name): return getattr(helpers, name)"},
    ),
    "a loaded module that makes its names": Case(
        "import outer\ndef fee(x): return outer.charge(x)",
        {"outer.py": "import helpers\ndef __getattr__(name): return getattr(helpers, name)"},
    ),
    "a function of a module by eval": Case(
        "from outer import fee",
        {"outer.py": "from helpers import charge\nRATE = 10\ndef fee(x): return eval('charge')(x) // RATE"},
    ),
    "a method": Case("import helpers\ndef fee(x): return helpers.Tariff().of(x)"),
    "a decorator of a library": Case(
        "import outer\ndef fee(x): return outer.by(x)",
        {
            "outer.py": "import functools, helpers\n@functools.singledispatch\ndef by(x): return 0\n"
            "@by.register\ndef _(x: int): return helpers.charge(x)"
        },
    ),
    "an attribute of a function": Case(
        "import helpers\ndef by(x): return x * by.rate\nby.rate = helpers.RATE\ndef fee(x): return by(x)"
    ),
    "a constant": Case("def fee(x):\n  from helpers import RATE\n  return x * RATE"),
    "a constant that is changed later": Case(
        "def fee(x):\n  from outer import RATES\n  return x * RATES['a']",
        {"outer.py": "import helpers\nRATES = {}\nRATES['a'] = helpers.RATE"},
    ),
    "a module of a namespace package": Case(
        "def fee(x):\n  from space.within.helpers import charge\n  return charge(x)",
        {"space/within/helpers.py": HELPERS},
    ),
}

UNRELATED = ("x + 100", "x + 200")
DOC = ("What is charged.", "What it costs.")
COMMENT = ("# a rate", "# the rate\n\n\n")
ANNOTATION = ("(x: int) -> int", "(x: float) -> 'float'")
NO_ANNOTATION = ("(x: int) -> int", "(x)")
INSIDE = "def fee(x):\n  from helpers import charge\n  return charge(x)"
WHOLE = "import helpers\ndef fee(x): return getattr(helpers, 'charge')(x)"
LOADED = "import helpers\ndef fee(x): return helpers.charge(x)"
DOTTED = "import pkg.helpers\ndef fee(x): return pkg.helpers.charge(x)"
SAME = {
    **{
        f"{what} {how}": Case(program, PACKAGE, *change)
        for how, program in {
            "imported inside": INSIDE,
            "of a loaded module": LOADED,
            "of a dotted module": DOTTED,
            "of a module as a whole": WHOLE,
        }.items()
        for what, change in {
            "a docstring": DOC,
            "the module's docstring": ('"""Helpers."""', ""),
            "a class's docstring": ("A tariff.", "The tariff."),
            "a comment, and lines": COMMENT,
            "an annotation": ANNOTATION,
            "no annotation": NO_ANNOTATION,
        }.items()
    },
    "another function, imported inside": Case(INSIDE, {}, *UNRELATED),
    "another function, of a module imported inside": Case(
        "def fee(x):\n  import helpers\n  return helpers.charge(x)", {}, *UNRELATED
    ),
    "another function, of a loaded module": Case(LOADED, {}, *UNRELATED),
    "another function, of a dotted module": Case(DOTTED, PACKAGE, *UNRELATED),
    "another function, of a module in a closure": Case(
        "import helpers\ndef made(h):\n  def fee(x): return h.charge(x)\n  return fee\nfee = made(helpers)",
        {},
        *UNRELATED,
    ),
    "what is run as a program": Case(
        INSIDE,
        {"helpers.py": HELPERS + "\nif __name__ == '__main__':\n  print(charge(1))"},
        "print(",
        "repr(",
    ),
    "a docstring of an inner class": Case(
        "def fee(x):\n  class Held:\n    'A.'\n    y = 1\n  return Held.y * x", {}, "'A.'", "'B.'"
    ),
    "a docstring of an inner function": Case(
        "def fee(x):\n  def held(y):\n    'A.'\n    return y\n  return held(x)", {}, "'A.'", "'B.'"
    ),
    "an annotated constant": Case(
        "def fee(x):\n  from helpers import RATE\n  return x * RATE", {}, "RATE = 10", "RATE: int = 10"
    ),
}


def written(folder: Path, case: Case, changed: bool) -> str:
    """The folder of a program before or after its change."""
    files = {"helpers.py": HELPERS, **case.files, "program.py": case.program}
    assert any(case.old in text for text in files.values()), case
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text).replace(case.old, case.new) if changed else dedent(text))
    return str(folder)


@pytest.fixture(scope="module")
def digests(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """By case, the digests of its function before and after the change."""
    root = tmp_path_factory.mktemp("programs")
    folders = {
        written(root / f"{number}{'ab'[changed]}", case, bool(changed)): name
        for number, (name, case) in enumerate({**CHANGED, **SAME}.items())
        for changed in (0, 1)
    }
    ran = subprocess.run(
        [sys.executable, "-B", "-c", DIGESTS, *folders],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": ":".join(sys.path), "PYTHONHASHSEED": "7"},
    )
    assert ran.returncode == 0, ran.stderr
    found: dict[str, list[str]] = {}
    for line in ran.stdout.splitlines():
        folder, digest = json.loads(line)
        found.setdefault(folders[folder], []).append(digest)
    return found


@pytest.mark.parametrize("case", CHANGED)
def test_a_change_of_what_a_function_reads_changes_its_digest(
    case: str, digests: dict[str, list[str]]
) -> None:
    before, after = digests[case]
    assert "Traceback" not in before + after
    assert before != after


@pytest.mark.parametrize("case", SAME)
def test_a_change_of_anything_else_does_not(case: str, digests: dict[str, list[str]]) -> None:
    before, after = digests[case]
    assert "Traceback" not in before + after
    assert before == after
