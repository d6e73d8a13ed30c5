"""What a Python function does, as a digest.

State that one version of a function computed must not be mixed with what the next computes, so the code of a function
in a query is part of what the query means. Two functions have one digest if they were compiled from the same text, in
this process or another: the digest is over bytecode, constants, names, defaults, what the closure holds, and the
globals that the code reads, functions and classes of the program by their own code in turn. File names, line numbers,
annotations, docstrings, memory addresses and the order of sets are no part of it.

What comes from a library (the standard one, or an installed package other than the function's own) is known by its
name alone: an upgrade of NumPy asks nobody to compute a view anew. So is what cannot be looked into, as a lock.

Bytecode belongs to a version of Python. With another one the digest is another, and the change is told from the
version (`PYTHON`).
"""

from __future__ import annotations

import copyreg
import dis
import hashlib
import io
import pickle
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from pyspark import Broadcast
from pyspark.sql.types import DataType

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"

_GLOBAL = ("LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "DELETE_GLOBAL")
_ATTRIBUTE = ("LOAD_ATTR", "LOAD_METHOD")
_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis), type(NotImplemented))
_HANDLES = ("py4j.", *(f"pyspark.{each}" for each in ("core.", "sql.session", "sql.classic.", "sql.udf")))
_SITES = tuple({sysconfig.get_path(each) for each in ("stdlib", "platstdlib", "purelib", "platlib")})


def load(command: bytes, broadcasts: Mapping[int, str]) -> Any:
    """The function that PySpark sends to its workers. `broadcasts`: the files of the variables that it refers to."""
    loaded = _Unpickler(command, broadcasts).load()
    if isinstance(loaded, Broadcast):  # PySpark sends a large function so
        loaded = _Unpickler(loaded.value, broadcasts).load()
    return loaded[0] if isinstance(loaded, tuple) else loaded


class _Unpickler(pickle.Unpickler):
    """Reads what this process has pickled, with broadcast variables from the driver's own files."""

    def __init__(self, command: bytes, broadcasts: Mapping[int, str]) -> None:
        super().__init__(io.BytesIO(command))
        self._broadcasts = broadcasts

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("pyspark.core.broadcast", "_from_id"):
            return lambda number: Broadcast(path=self._broadcasts[number])
        return super().find_class(module, name)


def digest(function: Any) -> str:
    """The digest of a function, or of any object that can be called."""
    module = getattr(function, "__module__", None) or "__main__"
    told = _Telling(module.partition(".")[0]).value(function)
    return hashlib.sha256(repr(told).encode()).hexdigest()


class _Telling:
    """Objects as nested tuples of strings. `own`: the package whose code is told, wherever it is installed."""

    def __init__(self, own: str) -> None:
        self._own = own
        self._numbers: dict[int, int] = {}  # of functions and classes, in the order in which they are met
        self._within: list[int] = []  # the other objects that are being told
        self._held: list[Any] = []  # so that no two of them ever have the same id

    def value(self, value: Any) -> Any:
        if isinstance(value, _PLAIN) and type(value) in _PLAIN:
            return type(value).__name__, repr(value)
        if isinstance(value, ModuleType):
            return "module", value.__name__
        if isinstance(value, CodeType):
            return self._code(value, None)
        if isinstance(value, FunctionType | type):
            return self._defined(value)
        if id(value) in self._within:
            return "itself", len(self._within) - self._within.index(id(value))
        self._within.append(id(value))
        try:
            return self._composed(value)
        finally:
            self._within.pop()

    def _composed(self, value: Any) -> Any:
        kind = type(value)
        if kind in (tuple, list):
            return kind.__name__, *map(self.value, value)
        if kind in (set, frozenset):
            return kind.__name__, *sorted(map(self.value, value), key=repr)
        if kind is dict:
            return "dict", *((self.value(key), self.value(each)) for key, each in value.items())
        if isinstance(value, MethodType):
            return "method", self.value(value.__func__), self.value(value.__self__)
        if isinstance(value, BuiltinFunctionType):
            whose = None if isinstance(value.__self__, ModuleType) else self.value(value.__self__)
            return "builtin", str(value.__module__), value.__qualname__, whose
        if isinstance(value, staticmethod | classmethod):
            return kind.__name__, self.value(value.__func__)
        if isinstance(value, property):
            return "property", *map(self.value, (value.fget, value.fset, value.fdel))
        if isinstance(value, cached_property):
            return "property", self.value(value.func)
        if isinstance(value, CellType):
            return self._cell(value)
        if isinstance(value, Broadcast):
            return "broadcast", self.value(value.value)
        if isinstance(value, DataType):
            return "type", value.json()
        return self._instance(value)

    def _instance(self, value: Any) -> Any:
        """Any other object, as it would be pickled."""
        kind = type(value)
        name = ("instance", kind.__module__, kind.__qualname__)
        if kind.__module__.startswith(_HANDLES):
            return name
        try:
            own = copyreg.dispatch_table.get(kind)
            made = own(value) if own is not None else value.__reduce_ex__(4)
        except Exception:  # whatever an object's own code raises: it cannot be looked into
            return name
        if isinstance(made, str):
            return *name, made, self.value(getattr(value, "__wrapped__", None))
        parts = [list(part) if isinstance(part, Iterator) else part for part in made]
        return *name, *map(self.value, parts)

    def _defined(self, value: FunctionType | type) -> Any:
        """A function or a class: of a library by its name, else by its code, told once."""
        name = (type(value).__name__, value.__module__, value.__qualname__)
        if self._is_library(value.__module__):
            return name
        if id(value) in self._numbers:
            return "number", self._numbers[id(value)]
        self._numbers[id(value)] = len(self._numbers)
        self._held.append(value)
        return self._function(value) if isinstance(value, FunctionType) else self._class(value)

    def _function(self, function: FunctionType) -> Any:
        return (
            "function",
            self._code(function.__code__, function.__doc__),
            self.value(function.__defaults__),
            self.value(function.__kwdefaults__),
            *map(self._cell, function.__closure__ or ()),
            *self._globals(function),
        )

    def _globals(self, function: FunctionType) -> Iterator[Any]:
        """The globals that a function reads, by name; of the program's own modules, what it reads there."""
        codes = list(_codes(function.__code__))
        names = _named(codes, _GLOBAL)
        attributes = _named(codes, _ATTRIBUTE)
        for name in names:
            if name in function.__globals__:
                value = function.__globals__[name]
                yield name, self.value(value)
                if isinstance(value, ModuleType) and not self._is_library(value.__name__):
                    found = [each for each in attributes if hasattr(value, each)]
                    yield from ((each, self.value(getattr(value, each))) for each in found)

    def _class(self, made: type) -> Any:
        members = []
        for name, member in sorted(vars(made).items()):
            code = isinstance(member, FunctionType | staticmethod | classmethod | property)
            if code or not (name.startswith("__") and name.endswith("__")):
                members.append((name, self.value(member)))
        return "class", *map(self.value, made.__bases__), *members

    def _code(self, code: CodeType, doc: str | None) -> Any:
        constants = list(code.co_consts)
        if constants and doc is not None and constants[0] == doc and not _reads_constant(code, 0):
            constants[0] = None
        return (
            "code",
            code.co_code.hex(),
            code.co_exceptiontable.hex(),
            (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags),
            (code.co_names, code.co_varnames, code.co_cellvars, code.co_freevars),
            *map(self.value, constants),
        )

    def _cell(self, cell: CellType) -> Any:
        try:
            return "cell", self.value(cell.cell_contents)
        except ValueError:
            return "empty cell"

    def _is_library(self, name: str | None) -> bool:
        top = (name or "__main__").partition(".")[0]
        if top in (self._own, "__main__"):
            return False
        if top in sys.stdlib_module_names:
            return True
        file = getattr(sys.modules.get(top), "__file__", None)
        places = getattr(sys.modules.get(top), "__path__", ())
        return any(str(place).startswith(_SITES) for place in (file, *places) if place)


def _codes(code: CodeType) -> Iterator[CodeType]:
    """A code object, and those of the functions that are defined inside."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _named(codes: Iterable[CodeType], operations: tuple[str, ...]) -> list[str]:
    found = {
        each.argval for code in codes for each in dis.get_instructions(code) if each.opname in operations
    }
    return sorted(found)


def _reads_constant(code: CodeType, at: int) -> bool:
    return any(each.opcode in dis.hasconst and each.arg == at for each in dis.get_instructions(code))
