"""Private memory of a process and all its descendants, sampled while they run.

What counts is anonymous memory (Anonymous of smaps_rollup): the heap and whatever else only ending the process gives
back. Layers are mapped files: their pages belong to the page cache, which the kernel writes back and drops as
it likes, but smaps counts those that one process alone has mapped as private too, dirty ones included. The sum
with them is kept beside it. Peaks of sums, not sums of peaks. Linux only: elsewhere nothing is sampled.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PROC = Path("/proc")
INTERVAL = 0.5


@contextmanager
def sampled(root: int | None) -> Iterator[dict[str, int]]:
    """Yields a dictionary that fills with peak bytes: driver, workers, jvm, python (driver, workers), all.

    No root, no samples.
    """
    peaks: dict[str, int] = {}
    if root is None:
        yield peaks
        return
    ended = threading.Event()

    def sample() -> None:
        while not ended.wait(INTERVAL):
            for kind, size in _now(root).items():
                peaks[kind] = max(peaks.get(kind, 0), size)

    thread = threading.Thread(target=sample, name="memory", daemon=True)
    thread.start()
    try:
        yield peaks
    finally:
        ended.set()
        thread.join()


def _now(root: int) -> dict[str, int]:
    sizes = dict.fromkeys(("driver", "workers", "jvm", "python", "python_mapped", "all"), 0)
    processes = list(_family(root))
    for pid, command in processes:
        anonymous, private = _private(pid)
        kind = "driver" if pid == root else "jvm" if command == "java" else "workers"
        sizes[kind] += anonymous
        sizes["all"] += anonymous
        if kind != "jvm":
            sizes["python"] += anonymous
            sizes["python_mapped"] += private
    return sizes if processes else {}


def _family(root: int) -> Iterator[tuple[int, str]]:
    """The root and its descendants, each with its command's name."""
    commands: dict[int, str] = {}
    children: dict[int, list[int]] = {}
    for entry in PROC.glob("[0-9]*"):
        try:
            stat = (entry / "stat").read_text()
        except OSError:
            continue
        name, _, rest = stat.partition("(")[2].rpartition(")")
        commands[int(entry.name)] = name
        children.setdefault(int(rest.split()[1]), []).append(int(entry.name))
    waiting = [root] if root in commands else []
    while waiting:
        pid = waiting.pop()
        yield pid, commands[pid]
        waiting += children.get(pid, [])


def _private(pid: int) -> tuple[int, int]:
    """Anonymous bytes, and all private ones; zeros for a process that has just ended."""
    try:
        lines = (PROC / str(pid) / "smaps_rollup").read_text().splitlines()[1:]
    except OSError:
        return 0, 0
    sizes = {name: int(size.split()[0]) * 1024 for name, size in (line.split(":") for line in lines)}
    return sizes["Anonymous"], sizes["Private_Clean"] + sizes["Private_Dirty"]
