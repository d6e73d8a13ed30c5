"""The one package that touches Catalyst: Spark's logical plans, taken apart and put together through py4j.

Plans and expressions stay in the JVM; here they are opaque handles (`Node`, `Expr`). Putting a plan together
keeps the expression ids of the plan it came from: a node that is replaced is replaced by one that outputs the
same attributes, so that everything above it still resolves and no expression is ever turned into text.

Each module has one class, which adds its methods to those of the one before: `jvm` (names, collections), `reading`,
`parsing`, `expressions`, `plans`, `running`. `Catalyst` is all of them.
"""

from slipstream.core.types import kept_schema, kept_type
from slipstream.plan.catalyst.describe import Describer
from slipstream.plan.catalyst.handles import Expr, ExprList, Node, Type
from slipstream.plan.catalyst.reading import SESSION, WATERMARK, WATERMARK_DELAY
from slipstream.plan.catalyst.running import Running


class Catalyst(Running):
    """Catalyst, as seen from one Spark session."""


__all__ = [
    "SESSION",
    "WATERMARK",
    "WATERMARK_DELAY",
    "Catalyst",
    "Describer",
    "Expr",
    "ExprList",
    "Node",
    "Type",
    "kept_schema",
    "kept_type",
]
