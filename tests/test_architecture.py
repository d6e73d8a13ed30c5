"""Dependencies point one way, down the list of packages that is the architecture.

What is imported is read from the source. The same checks are seen to fail on made-up trees, one a rule.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "slipstream"

TIERS = (
    {"testing"},
    {"cli", "ui"},
    {"app", "assembly", "datasource", "definitions", "planning", "rebuild"},
    {"observe"},
    {"sources", "sinks"},
    {"epoch"},
    {"plan"},
    {"dataflow"},
    {"durability"},
    {"store"},
    {"trace"},
)
"""From top to bottom. A package may import from its own tier and from those below. Single modules that are not
named (errors, clock, java, session, ...) are the core: below all, they import only each other."""

NEVER = {
    "cli": {"epoch", "plan", "dataflow", "trace"},
    "ui": {"epoch", "plan", "dataflow", "trace"},
    "sources": {"epoch", "plan", "dataflow", "store", "trace"},
    "sinks": {"epoch", "plan", "dataflow", "store", "trace"},
    "plan": {"durability", "store", "trace"},
    "dataflow": {"durability", "store"},
}
"""What a package does not know although it is below."""

NEVER_OUTSIDE = {
    "trace": ("pyspark", "py4j"),
    "store": ("pyspark", "py4j"),
    "durability": ("pyspark.sql", "py4j"),
}
"""What a package does not know of other libraries."""

JVM_MODULE = "plan.catalyst"
"""The one module of plan/ that touches the JVM."""

JVM_ATTRIBUTES = {"_jvm", "_jdf", "_jsparkSession", "_jsc", "_jc", "_jschema", "_gateway"}


@dataclass(frozen=True)
class Module:
    """A source file: its dotted name under slipstream ("" for the package itself), and what it holds."""

    name: str
    tree: ast.Module

    @property
    def package(self) -> str:
        return self.name.split(".")[0]


def modules_of(source: Path) -> dict[str, Module]:
    found = {}
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = Module(name, ast.parse(path.read_text(), str(path)))
    return found


def imports_of(module: Module) -> Iterator[str]:
    """Dotted names that a module imports, wherever in it; `from a import b` gives a.b, be b a module or not."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def own_imports(module: Module, modules: dict[str, Module]) -> set[str]:
    """The modules of Slipstream that a module imports."""
    found = set()
    for name in imports_of(module):
        if name.split(".")[0] == "slipstream":
            inner = name.removeprefix("slipstream").removeprefix(".")
            found.add(inner if inner in modules else inner.rpartition(".")[0])
    return found


def tier(package: str) -> int:
    return next((place for place, packages in enumerate(TIERS) if package in packages), len(TIERS))


def violations(source: Path) -> list[str]:
    modules = modules_of(source)
    found = [
        f"package {name} has no place in TIERS"
        for name in sorted(modules)
        if name and "." not in name and (source / name).is_dir() and tier(name) == len(TIERS)
    ]
    for name, module in sorted(modules.items()):
        if name == "":
            continue
        for other in sorted(own_imports(module, modules)):
            package, target = module.package, other.split(".")[0]
            if target == "" and package != "testing":
                found.append(f"{name} imports slipstream itself, which re-exports what is above it")
            elif target and tier(target) < tier(package):
                found.append(f"{name} imports {other}, which is above it")
            elif target in NEVER.get(package, ()):
                found.append(f"{name} imports {other}: {package} does not know {target}")
        for library in NEVER_OUTSIDE.get(module.package, ()):
            if any(f"{imported}.".startswith(f"{library}.") for imported in imports_of(module)):
                found.append(f"{name} imports {library}: {module.package} does not know it")
        if module.package == "plan" and name != JVM_MODULE and touches_jvm(module):
            found.append(f"{name} touches the JVM: only {JVM_MODULE} may")
    return found


def touches_jvm(module: Module) -> bool:
    return any(imported.split(".")[0] == "py4j" for imported in imports_of(module)) or any(
        isinstance(node, ast.Attribute) and node.attr in JVM_ATTRIBUTES for node in ast.walk(module.tree)
    )


def cycle(source: Path) -> list[str]:
    """The modules of one import cycle, or nothing."""
    modules = modules_of(source)
    graph = {name: own_imports(module, modules) - {name} for name, module in modules.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_dependencies_point_down() -> None:
    assert violations(SOURCE) == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert cycle(SOURCE) == []


@pytest.mark.parametrize(
    ("file", "text", "violation"),
    [
        (
            "trace/layer.py",
            "from slipstream.epoch.loop import run",
            "trace.layer imports epoch.loop, which is above it",
        ),
        (
            "trace/layer.py",
            "def f():\n    import pyspark.sql",
            "trace.layer imports pyspark: trace does not know it",
        ),
        ("trace/layer.py", "from pyspark import sql", "trace.layer imports pyspark: trace does not know it"),
        (
            "durability/agent.py",
            "from pyspark.sql import functions",
            "durability.agent imports pyspark.sql: durability does not know it",
        ),
        ("clock.py", "from slipstream import trace", "clock imports trace, which is above it"),
        (
            "sources/files.py",
            "from slipstream.trace.layer import Layer",
            "sources.files imports trace.layer: sources does not know trace",
        ),
        (
            "plan/rules.py",
            "def f(df):\n    return df._jdf",
            "plan.rules touches the JVM: only plan.catalyst may",
        ),
        ("plan/rules.py", "import py4j.java_gateway", "plan.rules touches the JVM: only plan.catalyst may"),
        (
            "epoch/loop.py",
            "from slipstream import App",
            "epoch.loop imports slipstream itself, which re-exports what is above it",
        ),
        (
            "app.py",
            "from slipstream.testing.oracle import batch",
            "app imports testing.oracle, which is above it",
        ),
        ("extras/__init__.py", "", "package extras has no place in TIERS"),
    ],
)
def test_a_violating_tree_is_caught(tmp_path: Path, file: str, text: str, violation: str) -> None:
    tree(tmp_path)
    write(tmp_path / file, text)
    assert violations(tmp_path) == [violation]


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("app.py", "from slipstream.trace.layer import Layer"),
        ("datasource.py", "from slipstream.trace import layer"),
        ("dataflow/join.py", "from slipstream.trace import layer\nfrom slipstream.errors import Oops"),
        ("plan/catalyst.py", "import py4j.java_gateway\nplan = df._jdf"),
        ("sources/files.py", "import pyspark.sql\nfrom slipstream.durability.lineage import Record"),
        ("java.py", "from slipstream.errors import Oops"),
        ("testing/oracle.py", "from slipstream import App"),
    ],
)
def test_what_the_architecture_allows_is_allowed(tmp_path: Path, file: str, text: str) -> None:
    tree(tmp_path)
    write(tmp_path / file, text)
    assert violations(tmp_path) == []


def test_a_circle_is_caught(tmp_path: Path) -> None:
    tree(tmp_path)
    assert cycle(tmp_path) == []
    write(tmp_path / "trace" / "layer.py", "def lazily():\n    from slipstream.trace import cover")
    write(tmp_path / "trace" / "cover.py", "from slipstream.trace.layer import Layer")
    assert {"trace.layer", "trace.cover"} <= set(cycle(tmp_path))


def tree(root: Path) -> None:
    for file in (
        "__init__.py",
        "errors.py",
        "trace/__init__.py",
        "trace/layer.py",
        "durability/__init__.py",
        "durability/lineage.py",
        "epoch/__init__.py",
        "epoch/loop.py",
        "testing/__init__.py",
        "testing/oracle.py",
    ):
        write(root / file, "")


def write(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
