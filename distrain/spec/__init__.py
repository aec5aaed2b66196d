"""The job spec: the one frozen document that travels from the command line to every rank."""

from distrain.spec.data import DataSpec
from distrain.spec.embeddings import EmbeddingsSpec
from distrain.spec.explain import explain_all, shown
from distrain.spec.fields import LARGEST, Combiner, PositiveInt, Real, Section, Whole
from distrain.spec.job import JOB_NAME, JobSpec
from distrain.spec.load import (
    dump_yaml,
    flat,
    load_spec,
    parse_spec,
    parse_yaml,
    plain,
    read_document,
)
from distrain.spec.models import (
    CrossSpec,
    CustomSpec,
    DcnSpec,
    DcnV2Spec,
    DeepFmSpec,
    DlrmCrossSpec,
    DlrmSpec,
    MlpSpec,
    ModelSpec,
    NcfSpec,
    TabularSpec,
    TwoTowerSpec,
    WideDeepSpec,
)
from distrain.spec.paths import PATHS, with_absolute_paths, with_home
from distrain.spec.presets import PRESETS
from distrain.spec.resources import (
    CheckpointSpec,
    DeadlinesSpec,
    QueueSpec,
    ResourcesSpec,
    RestartSpec,
)
from distrain.spec.resuming import MAY_DIFFER, MAY_DIFFER_WITHOUT_DECAY, different_fields
from distrain.spec.training import (
    EarlyStoppingSpec,
    EvaluateSpec,
    OptimizerSpec,
    ScheduleSpec,
    TrainSpec,
    ValidationMetric,
)

__all__ = [
    "CheckpointSpec",
    "Combiner",
    "CrossSpec",
    "CustomSpec",
    "DataSpec",
    "DcnSpec",
    "DcnV2Spec",
    "DeadlinesSpec",
    "DeepFmSpec",
    "DlrmCrossSpec",
    "DlrmSpec",
    "EarlyStoppingSpec",
    "EmbeddingsSpec",
    "EvaluateSpec",
    "JOB_NAME",
    "JobSpec",
    "LARGEST",
    "MAY_DIFFER",
    "MAY_DIFFER_WITHOUT_DECAY",
    "MlpSpec",
    "ModelSpec",
    "NcfSpec",
    "OptimizerSpec",
    "PATHS",
    "PRESETS",
    "PositiveInt",
    "QueueSpec",
    "Real",
    "ResourcesSpec",
    "RestartSpec",
    "ScheduleSpec",
    "Section",
    "TabularSpec",
    "TrainSpec",
    "TwoTowerSpec",
    "ValidationMetric",
    "Whole",
    "WideDeepSpec",
    "different_fields",
    "dump_yaml",
    "explain_all",
    "flat",
    "load_spec",
    "parse_spec",
    "parse_yaml",
    "plain",
    "read_document",
    "shown",
    "with_absolute_paths",
    "with_home",
]
