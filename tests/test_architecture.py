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
    {"app"},
    {"observe"},
    {"sources", "sinks"},
    {"epoch"},
    {"plan"},
    {"dataflow"},
    {"durability"},
    {"store"},
    {"trace"},
    {"spark"},
    {"core"},
)
"""From top to bottom. A package may import from its own tier and from those below."""

NEVER = {
    "cli": {"epoch", "plan", "dataflow", "trace"},
    "ui": {"epoch", "plan", "dataflow", "trace"},
    "sources": {"epoch", "plan", "dataflow", "store", "trace"},
    "sinks": {"epoch", "plan", "dataflow", "store", "trace"},
    "plan": {"durability", "store", "trace"},
    "dataflow": {"durability", "store"},
    "durability": {"spark"},
    "store": {"spark"},
    "trace": {"spark"},
}
"""What a package does not know although it is below."""

APART = {
    "plan.nodes": ("plan.rules", "plan.lower"),
    "plan.rules": ("plan.lower",),
    "plan.lower": ("plan.rules",),
}
"""The two steps of plan/ know the nodes between them, and not each other."""

NEVER_OUTSIDE = {
    "trace": ("pyspark", "py4j"),
    "store": ("pyspark", "py4j"),
    "durability": ("pyspark.sql", "py4j"),
}
"""What a package does not know of other libraries."""

JVM_PACKAGE = "plan.catalyst"
"""The one package that touches the JVM's side of plans: to all others nodes and expressions are opaque."""

OPAQUE_TO = {"plan", "epoch"}

JVM_ATTRIBUTES = {"_jvm", "_jdf", "_jsparkSession", "_jsc", "_jc", "_jschema", "_gateway", "java"}
"""The last is what a handle stands for (`plan.catalyst.handles`)."""


MEANS = {
    "LocalDisk": {"store.store", "app.app"},
    "Owned": {"store.store"},
    "cast(WritableDisk)": {"store.owned"},
    "Held": {"durability.joining"},
    "Swept": {"durability.joining"},
    "cast(WritableObjects)": {"durability.joining"},
}
"""Who may make what removes or replaces something in a store or on a replica. All others are given it by whoever asks
whether they may: what is for everybody (`Disk`, `Objects`) has no such operations, to which mypy sees."""

REMOVERS = {
    "store.disk": "the disk of a store itself",
    "trace.placing": "files under temporary names, once it was asked who may",
    "trace.merge": "upkeep of a folder that is given who may",
    "durability.work": "the spool",
    "durability.inbox": "the spool",
    "durability.follower": "the spool",
    "durability.fsck": "the spool",
    "durability.agent.process": "the spool",
    "app.backfill": "traces that are made anew, by the claim, and its scratch folder",
    "sinks.folder": "the folder that a sink writes, by its manifests",
    "sources.files": "input that is safe, if the user says so",
    "sources.memory": "a folder of the source's own",
    "sources.parts": "a folder of the source's own",
    "sources.stream": "a folder of the source's own",
    "sources.table": "a folder of the source's own",
    "sources.taken": "a folder of the source's own",
    "cli.drill": "the copy of a store",
    "cli.heartbeat": "signs of life",
    "spark.java": "the wrapper of the bundled Java",
}
"""Who removes or replaces files without a disk, and which."""

REMOVING = {"unlink", "rmtree", "rmdir", "rename", "truncate", "removedirs"}


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
        for step in (step for step in APART if within(name, step)):
            for other in sorted(own_imports(module, modules)):
                if any(within(other, each) for each in APART[step]):
                    found.append(f"{name} imports {other}: {step} stands apart from it")
        for library in NEVER_OUTSIDE.get(module.package, ()):
            if any(f"{imported}.".startswith(f"{library}.") for imported in imports_of(module)):
                found.append(f"{name} imports {library}: {module.package} does not know it")
        if module.package in OPAQUE_TO and not within(name, JVM_PACKAGE) and touches_jvm(module):
            found.append(f"{name} touches the JVM: only {JVM_PACKAGE} may")
    return found


def unasked(source: Path) -> list[str]:
    """Where something is made that may remove or replace, or files are, by somebody who is not named for it."""
    found = []
    for name, module in sorted(modules_of(source).items()):
        if module.package == "testing":
            continue
        calls = [node for node in ast.walk(module.tree) if isinstance(node, ast.Call)]
        for made in sorted({_called(call) for call in calls} & MEANS.keys()):
            if name not in MEANS[made]:
                found.append(f"{name} makes {made}: only {', '.join(sorted(MEANS[made]))} may")
        if name not in REMOVERS and any(_removes(call) for call in calls):
            found.append(f"{name} removes or replaces files, past the disk of a store")
    return found


def _called(call: ast.Call) -> str:
    called = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return f"cast({ast.unparse(call.args[0])})" if called == "cast" and call.args else called


def _removes(call: ast.Call) -> bool:
    """Whether a call looks like one that removes or replaces a file, of `os`, `shutil` or `pathlib`."""
    if not isinstance(call.func, ast.Attribute):
        return False
    of, called = ast.unparse(call.func.value), call.func.attr
    if called in REMOVING:
        return called != "truncate" or of == "os"
    if called in ("remove", "replace") and of == "os":
        return True
    return called == "replace" and len(call.args) == 1 and not call.keywords  # a path's: a text's has two


def within(name: str, package: str) -> bool:
    return f"{name}.".startswith(f"{package}.")


def touches_jvm(module: Module) -> bool:
    gateways = {"py4j.java_gateway", "py4j.java_collections"}
    return any(
        imported.rpartition(".")[0] in gateways or imported in gateways for imported in imports_of(module)
    ) or any(
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


def test_nothing_is_removed_or_replaced_but_by_whoever_asks_whether_it_may() -> None:
    assert unasked(SOURCE) == []
    known = modules_of(SOURCE)
    assert [
        name
        for name in (*REMOVERS, *(each for makers in MEANS.values() for each in makers))
        if name not in known
    ] == []


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
        ("core/clock.py", "from slipstream import trace", "core.clock imports trace, which is above it"),
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
            "plan/rules.py",
            "def f(node):\n    return node.java.joinType()",
            "plan.rules touches the JVM: only plan.catalyst may",
        ),
        (
            "epoch/loop.py",
            "def f(leaf):\n    return leaf.java.output()",
            "epoch.loop touches the JVM: only plan.catalyst may",
        ),
        (
            "plan/rules/join.py",
            "from slipstream.plan.lower.builder import Delta",
            "plan.rules.join imports plan.lower.builder: plan.rules stands apart from it",
        ),
        (
            "plan/nodes.py",
            "from slipstream.plan.lower.builder import Delta",
            "plan.nodes imports plan.lower.builder: plan.nodes stands apart from it",
        ),
        (
            "epoch/loop.py",
            "from slipstream import App",
            "epoch.loop imports slipstream itself, which re-exports what is above it",
        ),
        (
            "app/app.py",
            "from slipstream.testing.oracle import batch",
            "app.app imports testing.oracle, which is above it",
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
        ("app/app.py", "from slipstream.trace.layer import Layer"),
        ("observe/datasource.py", "from slipstream.trace import layer"),
        ("dataflow/join.py", "from slipstream.trace import layer\nfrom slipstream.core.errors import Oops"),
        ("plan/catalyst/reading.py", "import py4j.java_gateway\nplan = df._jdf"),
        ("epoch/loop.py", "from py4j.protocol import Py4JError"),
        ("sources/files.py", "import pyspark.sql\nfrom slipstream.durability.lineage import Record"),
        ("spark/java.py", "from slipstream.core.errors import Oops"),
        ("testing/oracle.py", "from slipstream import App"),
    ],
)
def test_what_the_architecture_allows_is_allowed(tmp_path: Path, file: str, text: str) -> None:
    tree(tmp_path)
    write(tmp_path / file, text)
    assert violations(tmp_path) == []


@pytest.mark.parametrize(
    ("file", "text", "violation"),
    [
        ("durability/ahead.py", "Owned(disk, lambda: None)", "makes Owned: only store.store may"),
        ("durability/ahead.py", "disk.LocalDisk(root)", "makes LocalDisk: only app.app, store.store may"),
        ("store/store.py", "cast(WritableDisk, disk)", "makes cast(WritableDisk): only store.owned may"),
        ("durability/follower.py", "Held(objects)", "makes Held: only durability.joining may"),
        ("durability/ahead.py", "path.unlink()", "removes or replaces files, past the disk of a store"),
        ("durability/ahead.py", "os.remove(path)", "removes or replaces files, past the disk of a store"),
        ("epoch/loop.py", "shutil.rmtree(path)", "removes or replaces files, past the disk of a store"),
        ("app/app.py", "temporary.replace(path)", "removes or replaces files, past the disk of a store"),
    ],
)
def test_whoever_removes_without_asking_is_caught(
    tmp_path: Path, file: str, text: str, violation: str
) -> None:
    tree(tmp_path)
    write(tmp_path / file, text)
    assert unasked(tmp_path) == [f"{file[:-3].replace('/', '.')} {violation}"]


def test_what_is_no_removal_is_allowed(tmp_path: Path) -> None:
    tree(tmp_path)
    write(tmp_path / "epoch" / "loop.py", "text.replace('a', 'b')\nreplace(state, left=0)\ndone.remove(1)")
    write(tmp_path / "testing" / "oracle.py", "LocalDisk(root).remove('claim')")
    assert unasked(tmp_path) == []


def test_a_circle_is_caught(tmp_path: Path) -> None:
    tree(tmp_path)
    assert cycle(tmp_path) == []
    write(tmp_path / "trace" / "layer.py", "def lazily():\n    from slipstream.trace import cover")
    write(tmp_path / "trace" / "cover.py", "from slipstream.trace.layer import Layer")
    assert {"trace.layer", "trace.cover"} <= set(cycle(tmp_path))


def tree(root: Path) -> None:
    for file in (
        "__init__.py",
        "core/__init__.py",
        "core/errors.py",
        "app/__init__.py",
        "trace/__init__.py",
        "trace/layer.py",
        "durability/__init__.py",
        "durability/lineage.py",
        "epoch/__init__.py",
        "plan/__init__.py",
        "plan/lower/__init__.py",
        "plan/lower/builder.py",
        "epoch/loop.py",
        "testing/__init__.py",
        "testing/oracle.py",
    ):
        write(root / file, "")


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
