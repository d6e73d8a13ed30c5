"""Delta tables; `target` is the theory."""

from slipstream.sinks.delta.target import DeltaSink, DeltaTarget, to_delta

__all__ = ["DeltaSink", "DeltaTarget", "to_delta"]
