"""Passes a run's entries on to tools that keep them: TensorBoard, MLflow, or one of your own."""

from distrain.sinks.base import RunFacts, Sink, Stamped
from distrain.sinks.choosing import open_sink, open_sinks
from distrain.sinks.feed import Feeds

__all__ = ["Feeds", "RunFacts", "Sink", "Stamped", "open_sink", "open_sinks"]
