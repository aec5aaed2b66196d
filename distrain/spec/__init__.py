"""The job spec: the one frozen document that travels from the command line to every rank."""

from distrain.spec.load import load_spec, parse_spec
from distrain.spec.sections import (
    CheckpointSpec,
    DataSpec,
    DeadlinesSpec,
    DlrmSpec,
    EmbeddingsSpec,
    EvaluateSpec,
    JobSpec,
    MlpSpec,
    ModelSpec,
    OptimizerSpec,
    QueueSpec,
    ResourcesSpec,
    RestartSpec,
    ScheduleSpec,
    TrainSpec,
)

__all__ = [
    "CheckpointSpec",
    "DataSpec",
    "DeadlinesSpec",
    "DlrmSpec",
    "EmbeddingsSpec",
    "EvaluateSpec",
    "JobSpec",
    "MlpSpec",
    "ModelSpec",
    "OptimizerSpec",
    "QueueSpec",
    "ResourcesSpec",
    "RestartSpec",
    "ScheduleSpec",
    "TrainSpec",
    "load_spec",
    "parse_spec",
]
