"""Where results go, by epoch; `base` is the theory."""

from slipstream.sinks.base import Append, Delivery, Mode, Replace, Sink, Stamp, Target, Upsert
from slipstream.sinks.delta import to_delta
from slipstream.sinks.folder import to_folder
from slipstream.sinks.follower import Follower
from slipstream.sinks.foreach import foreach
from slipstream.sinks.keyed import by_key, check_keys
from slipstream.sinks.postgres import to_postgres

__all__ = [
    "Append",
    "Delivery",
    "Follower",
    "Mode",
    "Replace",
    "Sink",
    "Stamp",
    "Target",
    "Upsert",
    "by_key",
    "check_keys",
    "foreach",
    "to_delta",
    "to_folder",
    "to_postgres",
]
