"""The app: what users touch, and how it becomes a running loop."""

from slipstream.app.app import SPARK_STARTED, App
from slipstream.app.opening import standing_by
from slipstream.app.reading import ordered

__all__ = ["SPARK_STARTED", "App", "ordered", "standing_by"]
