"""The job spec: the one frozen document that travels from the command line to every rank."""

from distrain.spec.data import (
    ANY_TABLE as ANY_TABLE,
    RAW_ROWS as RAW_ROWS,
    READERS as READERS,
    DataSpec as DataSpec,
    ReaderFacts as ReaderFacts,
    ReaderKind as ReaderKind,
    WindowsSpec as WindowsSpec,
)
from distrain.spec.explain import explain_all as explain_all, shown as shown
from distrain.spec.fields import (
    LARGEST as LARGEST,
    Pooling as Pooling,
    PositiveInt as PositiveInt,
    Real as Real,
    Section as Section,
    Whole as Whole,
)
from distrain.spec.fitting import (
    TableFacts as TableFacts,
    is_retrieval as is_retrieval,
    judging_metric as judging_metric,
)
from distrain.spec.job import JOB_NAME as JOB_NAME, JobSpec as JobSpec
from distrain.spec.load import (
    dump_yaml as dump_yaml,
    flat as flat,
    load_spec as load_spec,
    parse_spec as parse_spec,
    parse_yaml as parse_yaml,
    plain as plain,
    read_document as read_document,
)
from distrain.spec.models import (
    AutoIntSpec as AutoIntSpec,
    BstSpec as BstSpec,
    CrossSpec as CrossSpec,
    CustomSpec as CustomSpec,
    DcnSpec as DcnSpec,
    DcnV2Spec as DcnV2Spec,
    DeepFmSpec as DeepFmSpec,
    DinSpec as DinSpec,
    DlrmCrossSpec as DlrmCrossSpec,
    DlrmSpec as DlrmSpec,
    EmbeddingsSpec as EmbeddingsSpec,
    FinalMlpSpec as FinalMlpSpec,
    GdcnSpec as GdcnSpec,
    HstuSpec as HstuSpec,
    MaskNetSpec as MaskNetSpec,
    MlpSpec as MlpSpec,
    ModelSpec as ModelSpec,
    NcfSpec as NcfSpec,
    SasrecRetrievalSpec as SasrecRetrievalSpec,
    SasrecSpec as SasrecSpec,
    TabularSpec as TabularSpec,
    TwoTowerSpec as TwoTowerSpec,
    WideDeepSpec as WideDeepSpec,
    XDeepFmSpec as XDeepFmSpec,
)
from distrain.spec.paths import (
    PATHS as PATHS,
    absolute as absolute,
    with_absolute_paths as with_absolute_paths,
    with_home as with_home,
)
from distrain.spec.presets import (
    MODELS as MODELS,
    PRESETS as PRESETS,
    job_for as job_for,
    windows_of as windows_of,
)
from distrain.spec.removed import translated as translated
from distrain.spec.resources import (
    CheckpointSpec as CheckpointSpec,
    DeadlinesSpec as DeadlinesSpec,
    QueueSpec as QueueSpec,
    ResourcesSpec as ResourcesSpec,
    RestartSpec as RestartSpec,
)
from distrain.spec.resuming import (
    MAY_DIFFER as MAY_DIFFER,
    MAY_DIFFER_WITHOUT_DECAY as MAY_DIFFER_WITHOUT_DECAY,
    decaying_course as decaying_course,
    different_fields as different_fields,
)
from distrain.spec.row_filter import (
    ColumnName as ColumnName,
    ColumnTest as ColumnTest,
    Condition as Condition,
    Value as Value,
    parse_filter as parse_filter,
    tests_in as tests_in,
)
from distrain.spec.targets import with_targets as with_targets
from distrain.spec.tasks import (
    INPUT_NAMES as INPUT_NAMES,
    EsmmSpec as EsmmSpec,
    MmoeSpec as MmoeSpec,
    PleSpec as PleSpec,
    RegressionLoss as RegressionLoss,
    SharedBottomSpec as SharedBottomSpec,
    SharingSpec as SharingSpec,
    TaskSpec as TaskSpec,
)
from distrain.spec.training import (
    JUDGING_METRICS as JUDGING_METRICS,
    MORE_IS_BETTER as MORE_IS_BETTER,
    RETRIEVAL_METRIC as RETRIEVAL_METRIC,
    EarlyStoppingSpec as EarlyStoppingSpec,
    EvaluateSpec as EvaluateSpec,
    OptimizerSpec as OptimizerSpec,
    PlateauSpec as PlateauSpec,
    ScheduleSpec as ScheduleSpec,
    TrainSpec as TrainSpec,
    ValidationMetric as ValidationMetric,
    batch_for as batch_for,
)
