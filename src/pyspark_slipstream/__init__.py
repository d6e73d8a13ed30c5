"""Makes `spark.read.format("slipstream")` work in any PySpark program, with nothing to register.

PySpark looks through the installed top-level modules for those named `pyspark_*` and registers the
`DefaultSource` of each. This module is that name; the data source itself is `slipstream.observe.datasource`.
"""

from slipstream.observe.datasource import DefaultSource

__all__ = ["DefaultSource"]
