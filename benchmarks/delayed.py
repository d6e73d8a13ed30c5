"""Storage that is slow to answer, for Structured Streaming: a Hadoop filesystem `delayed://` over local folders.

Each operation on it (open, create, rename, delete, list, make a folder, ask for a status) waits before it is done, as
each operation on a replica does on our side (`slipstream.testing.faults`). One that calls another waits once. Nothing
else about the checkpoint changes: it is the local disk, through the interface that a remote store would have.

It is a Java class of a few lines, and a machine may have no Java compiler. Spark has one, Janino, that it compiles
its generated code with: a JVM is started for a moment to compile the class, and the folder with the result goes on
the class path of the JVM that is measured.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.java_gateway import launch_gateway

CLASS = "slipstream.bench.DelayedFileSystem"
DELAY = "slipstream.bench.delay"

_OPERATIONS = (
    ("FSDataInputStream", "open", "Path f, int size", "f, size"),
    (
        "FSDataOutputStream",
        "create",
        "Path f, FsPermission permission, boolean overwrite, int size, short copies, long block, Progressable progress",
        "f, permission, overwrite, size, copies, block, progress",
    ),
    ("boolean", "rename", "Path from, Path to", "from, to"),
    ("boolean", "delete", "Path f, boolean recursive", "f, recursive"),
    ("FileStatus[]", "listStatus", "Path f", "f"),
    ("boolean", "mkdirs", "Path f, FsPermission permission", "f, permission"),
    ("FileStatus", "getFileStatus", "Path f", "f"),
)

_FRAME = """
package slipstream.bench;

import java.io.IOException;
import java.net.URI;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.*;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.Progressable;

public class DelayedFileSystem extends RawLocalFileSystem {
  private long delay;
  private final ThreadLocal inside = new ThreadLocal();

  public URI getUri() { return URI.create("delayed:///"); }

  public String getScheme() { return "delayed"; }

  public void initialize(URI name, Configuration conf) throws IOException {
    super.initialize(name, conf);
    delay = conf.getLong("%s", 0L);
  }

  private boolean enter() throws IOException {
    if (inside.get() != null) return false;
    inside.set(Boolean.TRUE);
    try {
      Thread.sleep(delay);
    } catch (InterruptedException e) {
      inside.remove();
      throw new java.io.InterruptedIOException();
    }
    return true;
  }
%s}
"""

_METHOD = """
  public {returns} {name}({parameters}) throws IOException {{
    boolean outer = enter();
    try {{
      return super.{name}({arguments});
    }} finally {{
      if (outer) inside.remove();
    }}
  }}
"""


def source() -> str:
    """The class, in Java."""
    methods = [
        _METHOD.format(returns=returns, name=name, parameters=parameters, arguments=arguments)
        for returns, name, parameters, arguments in _OPERATIONS
    ]
    return _FRAME % (DELAY, "".join(methods))


def compiled(folder: Path) -> Path:
    """Compile the class into a folder, for a class path."""
    gateway: Any = launch_gateway()  # type: ignore[no-untyped-call]
    try:
        compiler = gateway.jvm.org.codehaus.janino.SimpleCompiler()
        compiler.cook(source())
        for name, code in dict(compiler.getBytecodes()).items():
            path = folder / f"{name.replace('.', '/')}.class"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(bytes(code))
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()
    return folder


def settings(folder: Path, delay: float) -> dict[str, str]:
    """What a Spark session needs to have `delayed://`, with so many seconds before each operation."""
    return {
        "spark.driver.extraClassPath": str(compiled(folder)),
        "spark.hadoop.fs.delayed.impl": CLASS,
        f"spark.hadoop.{DELAY}": str(round(delay * 1000)),
    }
