"""The job spec: the frozen document that describes a job, from the command line to every rank."""

from distrain.jobs.spec.data import DataSpec as DataSpec
from distrain.jobs.spec.job import JobSpec as JobSpec
from distrain.jobs.spec.load import (
    dump_yaml as dump_yaml,
    load_spec as load_spec,
    parse_spec as parse_spec,
)
from distrain.jobs.spec.models.kinds import (
    CustomSpec as CustomSpec,
    DcnSpec as DcnSpec,
    DcnV2Spec as DcnV2Spec,
    DeepFmSpec as DeepFmSpec,
    DlrmSpec as DlrmSpec,
    MlpSpec as MlpSpec,
    ModelSpec as ModelSpec,
    WideDeepSpec as WideDeepSpec,
)
from distrain.jobs.spec.training import TrainSpec as TrainSpec
