"""The app: what users touch, and how it becomes a running loop."""

from slipstream.app.app import SPARK_STARTED, App, ordered, standing_by

__all__ = ["SPARK_STARTED", "App", "ordered", "standing_by"]
