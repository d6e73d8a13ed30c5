"""What a Python function does, as a digest.

State that one version of a function computed must not be mixed with what the next computes, so the code of a function
in a query is part of what the query means. Two functions have one digest if they were compiled from the same text, in
this process or another: the digest is over bytecode, constants, names, defaults, what the closure holds, and the
globals that the code reads, functions and classes of the program by their own code in turn. File names, line numbers,
annotations, docstrings, memory addresses and the order of sets are no part of it.

Of a module of the program that the code has in a variable, those attributes count that the code names, through other
modules in turn. Of one that the code imports itself, or that is held or handed on as a value, what counts is read from
its source (`plan/modules.py`), because it need not be loaded here.

What comes from a library (the standard one, or an installed package other than the function's own) is known by its
name alone: an upgrade of NumPy asks nobody to compute a view anew. So is what cannot be looked into, as a lock. Of a
function that a library made, functions of the program in its closure count.

Not seen: a module whose name is in no string of the code, but made from data, and what a module reads from files while
the function imports it. Annotations of functions that are defined inside the function do count.

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
from abc import ABCMeta
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property, partial
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from pyspark import Broadcast
from pyspark.sql.types import DataType

from slipstream.plan.modules import FINDS_MODULES, MAKES_NAMES, Imported, Reads, Sources, imported

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"

_GLOBAL = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS", "STORE_GLOBAL", "DELETE_GLOBAL")
_LOCAL = ("LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF")
_ATTRIBUTE = ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR")
_HAS_DOC = 0x4000000  # a flag of code, from Python 3.13 on
_OF_A_PLACE = ("__doc__", "__firstlineno__")
_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis), type(NotImplemented))
_SAID = (*_PLAIN, FunctionType, type, tuple, list, dict, set, frozenset, ModuleType)
_HANDLES = ("py4j.", *(f"pyspark.{each}" for each in ("core.", "sql.session", "sql.classic.", "sql.udf")))


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
    telling = _Telling(module.partition(".")[0])
    told = [telling.value(function), telling.sources.told()]
    return hashlib.sha256(repr(told).encode()).hexdigest()


class _Telling:
    """Objects as nested tuples of strings. `own`: the package whose code is told, wherever it is installed."""

    def __init__(self, own: str) -> None:
        self.sources = Sources(own)
        self._numbers: dict[int, int] = {}  # of functions and classes, in the order in which they are met
        self._within: list[int] = []  # the other objects that are being told
        self._held: list[Any] = []  # so that no two of them ever have the same id

    def value(self, value: Any) -> Any:
        if isinstance(value, _PLAIN) and type(value) in _PLAIN:
            return type(value).__name__, repr(value)
        if isinstance(value, ModuleType):
            return self._module(value, None)
        if isinstance(value, CodeType):
            return self._code(value)
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
        name = ("instance", kind.__module__, kind.__qualname__, self.value(kind))
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
        function = value if isinstance(value, FunctionType) else None
        module = value.__module__ if function is None else function.__globals__.get("__name__")
        if not isinstance(module, str | None):  # of a class that was not written in Python
            module = "builtins"
        name = (type(value).__name__, module, value.__qualname__)
        library = self.sources.is_library(module or "__main__")
        if library and (function is None or not function.__closure__):
            return name
        if id(value) in self._numbers:
            return "number", self._numbers[id(value)]
        self._numbers[id(value)] = len(self._numbers)
        self._held.append(value)
        if function is None:
            return self._class(value)  # type: ignore[arg-type]
        return (*name, *self._given(function)) if library else self._function(function)

    def _given(self, function: FunctionType) -> Iterator[Any]:
        """The functions that a function of a library was given."""
        for cell in function.__closure__ or ():
            held = _contents(cell)
            several = list(held.values()) if isinstance(held, dict) else held
            for each in several if isinstance(several, list | tuple | set) else [held]:
                if isinstance(each, FunctionType | MethodType | partial):
                    yield self.value(each)

    def _function(self, function: FunctionType) -> Any:
        codes = list(_codes(function.__code__))
        around = function.__globals__
        package = around.get("__package__") or str(around.get("__name__") or "").rpartition(".")[0]
        held = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        known = {name: around[name] for name in _globals(codes) if name in around}
        values = [*known.values(), *map(_contents, held.values()), *(function.__defaults__ or ())]
        values += (function.__kwdefaults__ or {}).values()
        reads = _reads(codes, package, values)
        self.sources.follow(reads, package=package)
        if MAKES_NAMES & reads.names:
            self.sources.ask(str(around.get("__name__")), None)
        return (
            "function",
            self._code(function.__code__),
            self.value(function.__defaults__),
            self.value(function.__kwdefaults__),
            *(self._read(name, _contents(cell), reads) for name, cell in held.items()),
            *(self._read(name, value, reads) for name, value in known.items()),
            *(
                (name, self.value(each))
                for name, each in sorted(vars(function).items())
                if name != "__wrapped__"
            ),
        )

    def _read(self, name: str, value: Any, reads: Reads) -> Any:
        """What a function reads of a variable."""
        if isinstance(value, ModuleType):
            return name, self._module(value, None if name in reads.escaping else reads.attributes)
        return name, self.value(value)

    def _module(self, module: ModuleType, attributes: Collection[str] | None) -> Any:
        """A module of the program by what is read of it, None for all."""
        name = module.__name__
        if self.sources.is_library(name) or id(module) in self._within:
            return "module", name
        has = vars(module)
        if attributes is None or ("__getattr__" in has and not has.keys() >= set(attributes)):
            if self.sources.has(name):
                self.sources.ask(name, None)
                return "module", name
            attributes = [each for each, value in has.items() if isinstance(value, _SAID)]
        self._within.append(id(module))
        told = []
        for each in sorted(attributes):
            if each in has and not each.startswith("__"):
                value = has[each]
                one = self._module(value, attributes) if isinstance(value, ModuleType) else self.value(value)
                told.append((each, one))
            elif each not in has:
                self.sources.ask(f"{name}.{each}", attributes)
        self._within.pop()
        return "module", name, *told

    def _class(self, made: type) -> Any:
        members = []
        for name, member in sorted(vars(made).items()):
            code = isinstance(member, FunctionType | staticmethod | classmethod | property)
            if code or not (name.startswith("__") and name.endswith("__")):
                members.append((name, self.value(member)))
        if type(made) not in (type, ABCMeta):
            members.append(("__annotations__", self.value(vars(made).get("__annotations__"))))
        return "class", self.value(type(made)), *map(self.value, made.__bases__), *members

    def _code(self, code: CodeType) -> Any:
        return (
            "code",
            tuple(self._instructions(code)),
            code.co_exceptiontable.hex(),
            (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags & ~_HAS_DOC),
            (code.co_names, code.co_varnames, code.co_cellvars, code.co_freevars),
        )

    def _instructions(self, code: CodeType) -> Iterator[Any]:
        """Instructions with the constants that they read in place: one that none reads is a docstring."""
        instructions = list(dis.get_instructions(code))
        for each, following in zip(instructions, [*instructions[1:], None], strict=True):
            if following is not None and following.argval in _OF_A_PLACE and following.opname == "STORE_NAME":
                continue
            constant = each.opcode in dis.hasconst
            yield each.opname, self.value(each.argval) if constant else each.arg

    def _cell(self, cell: CellType) -> Any:
        return "cell", self.value(_contents(cell))


def _contents(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # nothing yet
        return None


def _codes(code: CodeType) -> Iterator[CodeType]:
    """A code object, and those of the functions that are defined inside."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _steps(code: CodeType) -> list[dis.Instruction]:
    return [each for each in dis.get_instructions(code) if each.opname not in ("EXTENDED_ARG", "NOP")]


def _globals(codes: Collection[CodeType]) -> list[str]:
    """The globals that code names."""
    return sorted({each.argval for code in codes for each in _steps(code) if each.opname in _GLOBAL})


def _reads(codes: Collection[CodeType], package: str, values: Collection[Any]) -> Reads:
    """What code reads. values: those of the variables around it."""
    names: set[str] = set()
    attributes: set[str] = set()
    escaping: set[str] = set()
    imports: list[Imported] = []
    strings = {each for value in values for each in _strings(value)}
    for code in codes:
        strings.update(each for constant in code.co_consts for each in _strings(constant))
        steps = _steps(code)
        for at, step in enumerate(steps):
            if step.opname in _ATTRIBUTE:
                attributes.add(step.argval)
            elif step.opname in (*_GLOBAL, *_LOCAL) or "LOAD_FAST" in step.opname:
                variables = _variables(step)
                names.update(variables)
                if at + 1 < len(steps) and steps[at + 1].opname in _ATTRIBUTE:
                    variables.pop()
                escaping.update(variables)
            elif step.opname == "IMPORT_NAME":
                imports += _import(steps, at, package)
    finds = bool(FINDS_MODULES & (names | attributes))
    return Reads(
        frozenset(names),
        frozenset(attributes),
        frozenset(escaping),
        tuple(imports),
        frozenset(strings),
        finds,
    )


def _variables(step: dis.Instruction) -> list[str]:
    """The variables that an instruction names: two of them may be in one."""
    return [step.argval] if isinstance(step.argval, str) else list(step.argval)


def _import(steps: list[dis.Instruction], at: int, package: str) -> list[Imported]:
    """The import at a place of some code: its level and the names are the two constants before, and what follows
    stores what was imported.
    """
    level, given = steps[at - 2].argval, steps[at - 1].argval
    stored = (steps[i] for i in range(at, len(steps)) if steps[i].opname.startswith("STORE_"))
    variables = [_variables(next(stored))[0] for _ in given or [None]]
    return imported(
        steps[at].argval, dict(zip(given or (), variables, strict=False)), variables[0], level, package
    )


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | tuple | set | frozenset):
        yield from (each for each in value if isinstance(each, str))
    elif isinstance(value, dict):
        yield from (each for each in (*value, *value.values()) if isinstance(each, str))
