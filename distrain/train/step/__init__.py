"""One training step: forward, backward, exchange, update."""

from distrain.train.step.dense import DenseTraining, check_precision
from distrain.train.step.device_metrics import DeviceBinaryMetrics
from distrain.train.step.graphed_step import GraphedStep, check_graph
from distrain.train.step.learning_rate import lr_at
from distrain.train.step.routing import (
    Batches,
    MakeRoute,
    Routed,
    RouteMaker,
    StreamForRoutes,
    route_batch,
    routes_of,
)
from distrain.train.step.slicing import Slicing, slicing_of
from distrain.train.step.step import TrainStep
from distrain.train.step.window import NonFiniteLoss, OpenWindow

__all__ = [
    "Batches",
    "DenseTraining",
    "DeviceBinaryMetrics",
    "GraphedStep",
    "MakeRoute",
    "NonFiniteLoss",
    "OpenWindow",
    "RouteMaker",
    "Routed",
    "Slicing",
    "StreamForRoutes",
    "TrainStep",
    "check_graph",
    "check_precision",
    "lr_at",
    "route_batch",
    "routes_of",
    "slicing_of",
]
