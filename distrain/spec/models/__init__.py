"""The sections `model`, a class for each kind, and `embeddings`."""

from distrain.spec.models.interactions import (
    AutoIntSpec as AutoIntSpec,
    FinalMlpSpec as FinalMlpSpec,
    MaskNetSpec as MaskNetSpec,
    XDeepFmSpec as XDeepFmSpec,
)
from distrain.spec.models.kinds import (
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
    GdcnSpec as GdcnSpec,
    HstuSpec as HstuSpec,
    MlpSpec as MlpSpec,
    ModelSpec as ModelSpec,
    NcfSpec as NcfSpec,
    SasrecRetrievalSpec as SasrecRetrievalSpec,
    SasrecSpec as SasrecSpec,
    TabularSpec as TabularSpec,
    TwoTowerSpec as TwoTowerSpec,
    WideDeepSpec as WideDeepSpec,
)
