"""What code reads of the program's own modules, found in their source. Nothing is imported and nothing is run.

A function may import a module when it is called, so the driver need not have it loaded. What counts of a module is a
*slice*: the statements that bind the names that are asked for, those that bind what these mention, and so on, in other
modules of the program too; and always those that do something while the module is imported (an entry in a registry, a
setting), of it, of the packages around it and of every module that it imports. A slice is told as a syntax tree without
docstrings, annotations, comments and lines.

Where it cannot be seen which names are asked for, all of a module counts, and all of what it imports: where a module is
handed on as a value, or makes names as it runs (`globals()`, `exec`, `__getattr__`). A module that is found at run time
by a string counts if that string is in the code, whole, or the package that it begins with.

What is the standard library's, or installed, is no part of the program (`is_library`).
"""

from __future__ import annotations

import ast
import builtins
import hashlib
import pkgutil
import sys
import sysconfig
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.machinery import ModuleSpec
from importlib.util import resolve_name
from pathlib import Path
from typing import Any

FINDS_MODULES = {"import_module", "__import__", "modules", "find_spec", "run_module", "resolve_name"}
"""Names by which code finds a module at run time."""

MAKES_NAMES = {"globals", "vars", "locals", "exec", "eval"}
"""Names by which code reads or makes variables that it does not name."""

_LIBRARIES = {"pyspark", "py4j", "slipstream", *sys.stdlib_module_names}
_PLACES = {"site-packages", "dist-packages"}
_SITES = tuple({sysconfig.get_path(each) for each in ("stdlib", "platstdlib", "purelib", "platlib")})
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DOING = (ast.For, ast.While, ast.With, ast.AugAssign, ast.Delete, ast.Raise, ast.Assert, ast.Expr, ast.Match)


@dataclass(frozen=True)
class Imported:
    """An import of a module, or of a name that it gives, and the variable that it is bound to."""

    module: str
    name: str | None
    bound: str


@dataclass(frozen=True)
class Reads:
    """What a piece of code reads: variables, attributes of whatever, the variables that it uses for more than an
    attribute, what it imports, its strings, and whether it may find modules by them.
    """

    names: frozenset[str] = frozenset()
    attributes: frozenset[str] = frozenset()
    escaping: frozenset[str] = frozenset()
    imports: tuple[Imported, ...] = ()
    strings: frozenset[str] = frozenset()
    finds: bool = False


@dataclass(frozen=True)
class _Statement:
    """A statement of a module: its tree as text, the names that it binds there, what it reads, and whether it does
    nothing but bind names.
    """

    text: str
    binds: frozenset[str]
    reads: Reads
    inert: bool


class _Module:
    """A module's statements, and which of them are taken."""

    def __init__(self, statements: Sequence[_Statement], package: str = "") -> None:
        self.statements = statements
        self.package = package
        self.whole = False
        self.asked: set[frozenset[str]] = set()
        self.taken: set[int] = set()
        self.finds = any(each.reads.finds for each in statements)
        self._binding: dict[str, list[int]] = {}
        self._imports: dict[str, list[Imported]] = {}
        for i, statement in enumerate(statements):
            for name in statement.binds:
                self._binding.setdefault(name, []).append(i)
            for each in statement.reads.imports:
                if each.bound in statement.binds:
                    self._imports.setdefault(each.bound, []).append(each)

    def binding(self, name: str) -> list[int]:
        """The statements that bind a name."""
        return self._binding.get(name, [])

    def imports(self, names: Iterable[str]) -> list[Imported]:
        """The imports of the module itself that bind one of these names."""
        return [each for name in sorted(names) for each in self._imports.get(name, ())]


class Sources:
    """Slices of the program's modules. `own`: a package of the program, wherever it is installed."""

    def __init__(self, own: str) -> None:
        self._own = own
        self._modules: dict[str, _Module | None] = {}
        self._specs: dict[str, ModuleSpec | None] = {}
        self._waiting: list[tuple[str, frozenset[str] | None]] = []

    def is_library(self, name: str) -> bool:
        """Whether a module is known by its name alone."""
        top = name.partition(".")[0]
        if top in (self._own, "__main__"):
            return False
        if top in _LIBRARIES or top.startswith("_cython_"):
            return True
        module = sys.modules.get(top)
        places = [getattr(module, "__file__", None), *getattr(module, "__path__", ())]
        if module is None:
            spec = self._spec(top)
            places = [] if spec is None else [spec.origin, *_locations(spec)]
        return any(_is_site(str(place)) for place in places if place)

    def has(self, name: str) -> bool:
        """Whether this is a module of the program that can be looked into."""
        return name != "__main__" and not self.is_library(name) and self._spec(name) is not None

    def ask(self, name: str, names: Iterable[str] | None) -> None:
        """Count in what a module has of these names, None for all of it."""
        self._waiting.append((name, None if names is None else frozenset(names)))

    def follow(self, reads: Reads, bound: Iterable[Imported] = (), package: str = "") -> None:
        """Count in what a piece of code reads. bound: what was imported around it."""
        for each in (*reads.imports, *bound):
            wanted = None if each.bound in reads.escaping else reads.attributes
            if each.name == "*":
                self.ask(each.module, None)
            elif each.name is not None:
                self.ask(each.module, [each.name])
                self.ask(f"{each.module}.{each.name}", wanted)
            else:
                self.ask(each.module, wanted)
                if each.bound == each.module.partition(".")[0]:
                    self.ask(each.bound, wanted)
        for text in sorted(reads.strings if reads.finds else ()):
            self._find(text, package)

    def told(self) -> tuple[Any, ...]:
        """All slices, modules by their names and statements in their order."""
        while self._waiting:
            self._take(*self._waiting.pop())
        found = {name: module for name, module in sorted(self._modules.items()) if module is not None}
        texts = {
            name: [module.statements[i].text for i in sorted(module.taken)] for name, module in found.items()
        }
        return tuple((name, *each) for name, each in texts.items() if each)

    def _find(self, text: str, package: str) -> None:
        """Count in the module that a string names, or the package that it begins with."""
        name = text.rstrip(".")
        if name.startswith(".") and package:
            try:
                name = resolve_name(name, package)
            except ImportError:
                return
        if not all(part.isidentifier() for part in name.split(".")) or not self.has(name):
            return
        self.ask(name, None)
        spec = self._spec(name)
        if spec is not None and text.endswith("."):
            for each in pkgutil.iter_modules(_locations(spec)):
                self._find(f"{name}.{each.name}" + "." * each.ispkg, "")

    def _take(self, name: str, names: frozenset[str] | None) -> None:
        module = self._module(name)
        if module is None or module.whole or names in module.asked:
            return
        if names is None:
            module.whole = True
            for i, statement in enumerate(module.statements):
                self._include(module, i)
                bound = frozenset(each.bound for each in statement.reads.imports)
                self.follow(replace(statement.reads, escaping=bound))
            return
        module.asked.add(names)
        for each in names:
            found = module.binding(each)
            for i in found:
                self._include(module, i)
            if found:
                self.follow(Reads(attributes=names, imports=tuple(module.imports([each]))))
            elif self.has(f"{name}.{each}"):
                self.ask(f"{name}.{each}", names)
            elif module.binding("__getattr__"):
                self.ask(name, None)

    def _include(self, module: _Module, at: int) -> None:
        if at in module.taken:
            return
        module.taken.add(at)
        reads = replace(module.statements[at].reads, finds=module.finds)
        self.follow(reads, module.imports(reads.names), module.package)
        for name in reads.names:
            for i in module.binding(name):
                self._include(module, i)

    def _module(self, name: str) -> _Module | None:
        if name not in self._modules:
            self._modules[name] = module = self._read(name) if self.has(name) else None
            if module is not None:
                self.ask(name.rpartition(".")[0], ())
                for i, statement in enumerate(module.statements):
                    for each in statement.reads.imports:
                        self.ask(each.module, None if each.name == "*" else ())
                    if not statement.inert:
                        self._include(module, i)
                if any(MAKES_NAMES & each.reads.names for each in module.statements):
                    self.ask(name, None)
        return self._modules[name]

    def _read(self, name: str) -> _Module | None:
        spec = self._spec(name)
        assert spec is not None, "asked for before"
        try:
            source = spec.loader.get_source(name)  # type: ignore[union-attr]
            tree = None if source is None else ast.parse(source)
        except Exception:  # whatever a loader raises, or a file that is no Python
            tree = None
        if tree is None:
            return _unread(spec)
        package = spec.parent or ""
        statements = list(_statements(_Bare().visit(tree).body))
        given = [_bound(each, package, self.is_library) for each in statements]
        known = {*dir(builtins), *(name for names in given for name in names)} - MAKES_NAMES - FINDS_MODULES
        return _Module([_statement(each, package, known) for each in statements], package)

    def _spec(self, name: str) -> ModuleSpec | None:
        if name not in self._specs:
            self._specs[name] = self._found(name)
        return self._specs[name]

    def _found(self, name: str) -> ModuleSpec | None:
        """As `importlib.util.find_spec`, which would import the packages that a module is in."""
        loaded = getattr(sys.modules.get(name), "__spec__", None)
        if loaded is not None:
            return loaded if isinstance(loaded, ModuleSpec) else None
        parent, _, last = name.rpartition(".")
        around = self._spec(parent) if parent else None
        path = None if around is None else _locations(around)
        if not name or (parent and not path):
            return None
        for finder in sys.meta_path:
            try:
                spec = finder.find_spec(name, path)
            except Exception:  # whatever a finder of the program's own raises
                continue
            if spec is not None:
                return spec
        inside = [str(Path(each, last)) for each in path or () if Path(each, last).is_dir()]
        if not inside:
            return None
        spec = ModuleSpec(name, None, is_package=True)  # a namespace package inside one that is not loaded
        spec.submodule_search_locations = inside
        return spec


def _unread(spec: ModuleSpec) -> _Module | None:
    """A module that has no source, by its file."""
    if not spec.has_location or spec.origin is None or not Path(spec.origin).is_file():
        return None
    text = hashlib.sha256(Path(spec.origin).read_bytes()).hexdigest()
    return _Module([_Statement(text, frozenset(), Reads(), inert=False)])


def _locations(spec: ModuleSpec) -> list[str]:
    return list(spec.submodule_search_locations or ())


def _is_site(place: str) -> bool:
    return bool(_PLACES & set(Path(place).parts)) or any(Path(place).is_relative_to(each) for each in _SITES)


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module that are run when it is imported."""
    for each in body:
        if isinstance(each, ast.If) and _never(each.test):
            yield from _statements(each.orelse)
        elif not isinstance(each, ast.Pass):
            yield each


def _never(test: ast.expr) -> bool:
    """Whether a condition only holds where the module is the program, or for a checker of types."""
    text = ast.unparse(test)
    return text in ("TYPE_CHECKING", "typing.TYPE_CHECKING") or (
        isinstance(test, ast.Compare) and "__name__" in text and "__main__" in text
    )


def _statement(node: ast.stmt, package: str, known: set[str]) -> _Statement:
    binds = _binds(node) | {
        name for each in ast.walk(node) if isinstance(each, ast.Global) for name in each.names
    }
    return _Statement(ast.dump(node), frozenset(binds), reads_of(node, package), _is_inert(node, known))


def _binds(node: ast.stmt) -> set[str]:
    names: set[str] = set()
    for each in _executed(node):
        if isinstance(each, (*_FUNCTIONS, ast.ClassDef)):
            names.add(each.name)
        elif isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Load):
            names.add(each.id)
        elif isinstance(each, ast.Import | ast.ImportFrom):
            names.update(alias.asname or alias.name.partition(".")[0] for alias in each.names)
    return names


def _bound(node: ast.stmt, package: str, is_library: Callable[[str], bool]) -> set[str]:
    """The names that a statement binds to what a library gives."""
    return {
        each.bound for each in _imports(node, package) if is_library(each.module) and each.module != "sys"
    }


def reads_of(node: ast.AST, package: str) -> Reads:
    """What a piece of a module reads. package: the one that the module is in."""
    parts = list(ast.walk(node))
    names = Counter(each.id for each in parts if isinstance(each, ast.Name))
    looked = [each for each in parts if isinstance(each, ast.Attribute)]
    plain = Counter(each.value.id for each in looked if isinstance(each.value, ast.Name))
    attributes = frozenset(each.attr for each in looked)
    values = [each.value for each in parts if isinstance(each, ast.Constant)]
    return Reads(
        names=frozenset(names),
        attributes=attributes,
        escaping=frozenset(names - plain),
        imports=tuple(_imports(node, package)),
        strings=frozenset(each for each in values if isinstance(each, str)),
        finds=bool(FINDS_MODULES & {*names, *attributes}),
    )


def imported(module: str, names: Mapping[str, str], bound: str, level: int, package: str) -> list[Imported]:
    """What one import binds. names: those that are imported from the module, and their variables."""
    try:
        full = resolve_name("." * level + module, package) if level else module
    except ImportError:
        return []
    if names:
        return [Imported(full, name, variable) for name, variable in names.items()]
    return [Imported(full, None, bound)]


def _imports(node: ast.AST, package: str) -> Iterator[Imported]:
    for each in ast.walk(node):
        if isinstance(each, ast.Import):
            for alias in each.names:
                bound = alias.asname or alias.name.partition(".")[0]
                yield from imported(alias.name, {}, bound, 0, package)
        elif isinstance(each, ast.ImportFrom):
            names = {alias.name: alias.asname or alias.name for alias in each.names}
            yield from imported(each.module or "", names, "", each.level, package)


def _executed(node: ast.AST) -> Iterator[ast.AST]:
    """What is run when a statement is, without the bodies of the functions that it defines."""
    yield node
    if isinstance(node, _FUNCTIONS):
        inner: list[ast.AST] = [*node.decorator_list, *node.args.defaults]
        inner += [each for each in node.args.kw_defaults if each is not None]
    elif isinstance(node, ast.Lambda):
        inner = []
    else:
        inner = list(ast.iter_child_nodes(node))
    for each in inner:
        yield from _executed(each)


def _is_inert(node: ast.stmt, known: set[str]) -> bool:
    """Whether a statement does nothing but bind names. known: names of libraries and of Python itself."""
    for each in _executed(node):
        if isinstance(each, _DOING):
            return False
        if isinstance(each, ast.Attribute | ast.Subscript) and not isinstance(each.ctx, ast.Load):
            return False
        called: list[ast.AST] = [each] if isinstance(each, ast.Call) else []
        if isinstance(each, (*_FUNCTIONS, ast.ClassDef)):
            called += each.decorator_list
        if isinstance(each, ast.ClassDef):
            called += [*each.bases, *each.keywords]
        named = {name.id for part in called for name in ast.walk(part) if isinstance(name, ast.Name)}
        if not named <= known:
            return False
    return True


class _Bare(ast.NodeTransformer):
    """Takes out docstrings and annotations. Those of a class with bases stay: the bases may go by them."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        self.generic_visit(node)
        return ast.Pass() if isinstance(node.value, ast.Constant) else node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        return ast.arg(node.arg, None, None)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._function(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        body = [
            self._field(each, node) if isinstance(each, ast.AnnAssign) else self.visit(each)
            for each in node.body
        ]
        node.body = []
        self.generic_visit(node)
        node.body = _without_pass(body)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        self.generic_visit(node)
        return ast.Pass() if node.value is None else ast.Assign([node.target], node.value)

    def _field(self, node: ast.AnnAssign, of: ast.ClassDef) -> ast.AnnAssign:
        if not of.bases:
            node.annotation = ast.Constant(None)
        self.generic_visit(node)
        return node

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        node.returns = None
        self.generic_visit(node)
        node.body = _without_pass(node.body)
        return node


def _without_pass(body: Iterable[ast.stmt]) -> list[ast.stmt]:
    return [each for each in body if not isinstance(each, ast.Pass)]
