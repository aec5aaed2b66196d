"""The job spec: the one frozen document that travels from the command line to every rank."""

from distrain.spec.load import load_spec, parse_spec
from distrain.spec.sections import (
    DataSpec,
    DeadlinesSpec,
    DlrmSpec,
    EmbeddingsSpec,
    EvaluateSpec,
    JobSpec,
    MlpSpec,
    ModelSpec,
    OptimizerSpec,
    ResourcesSpec,
    ScheduleSpec,
    TrainSpec,
)

__all__ = [
    "DataSpec",
    "DeadlinesSpec",
    "DlrmSpec",
    "EmbeddingsSpec",
    "EvaluateSpec",
    "JobSpec",
    "MlpSpec",
    "ModelSpec",
    "OptimizerSpec",
    "ResourcesSpec",
    "ScheduleSpec",
    "TrainSpec",
    "load_spec",
    "parse_spec",
]
