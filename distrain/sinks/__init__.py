"""Passes a run's entries on to tools that keep them: TensorBoard, MLflow, or one of your own."""

from distrain.sinks.base import RunFacts as RunFacts, Sink as Sink, Stamped as Stamped
from distrain.sinks.choosing import (
    known_sinks as known_sinks,
    open_sink as open_sink,
    open_sinks as open_sinks,
)
from distrain.sinks.feed import Feeds as Feeds
