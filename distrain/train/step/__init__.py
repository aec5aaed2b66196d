"""One training step: forward, backward, exchange, update."""

from distrain.train.step.dense import DenseTraining as DenseTraining
from distrain.train.step.device_metrics import (
    DeviceTargets as DeviceTargets,
    TargetRows as TargetRows,
    rows_of as rows_of,
)
from distrain.train.step.graphed_step import (
    GraphedStep as GraphedStep,
    check_graph as check_graph,
    may_record as may_record,
)
from distrain.train.step.learning_rate import lr_at as lr_at, reduced as reduced
from distrain.train.step.open_report import NonFiniteLoss as NonFiniteLoss, OpenReport as OpenReport
from distrain.train.step.precision import check_precision as check_precision
from distrain.train.step.routing import (
    Batches as Batches,
    MakeRoute as MakeRoute,
    Routed as Routed,
    RouteMaker as RouteMaker,
    StreamForRoutes as StreamForRoutes,
    route_batch as route_batch,
    routes_of as routes_of,
)
from distrain.train.step.step import (
    Slicing as Slicing,
    TrainStep as TrainStep,
    slicing_of as slicing_of,
)
