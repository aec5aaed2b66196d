"""The building blocks of networks; each is a `Block`."""

from distrain.models.blocks.block import (
    Aggregate as Aggregate,
    Block as Block,
    Chain as Chain,
    ParallelBlock as ParallelBlock,
)
from distrain.models.blocks.cross import CrossBlock as CrossBlock
from distrain.models.blocks.event_sequences import (
    EventBlock as EventBlock,
    TargetAttention as TargetAttention,
)
from distrain.models.blocks.filter import (
    ContinuousFeatures as ContinuousFeatures,
    FieldVectors as FieldVectors,
    Filter as Filter,
    PiecewiseLinear as PiecewiseLinear,
)
from distrain.models.blocks.gates import (
    BilinearFusion as BilinearFusion,
    FeatureGate as FeatureGate,
    MaskNetBlock as MaskNetBlock,
)
from distrain.models.blocks.hashed_cross import HashedCross as HashedCross
from distrain.models.blocks.hstu import HSTUBlock as HSTUBlock
from distrain.models.blocks.interaction import (
    CompressedInteraction as CompressedInteraction,
    DLRMBlock as DLRMBlock,
    DotProductInteraction as DotProductInteraction,
    FieldAttention as FieldAttention,
    FMBlock as FMBlock,
)
from distrain.models.blocks.layers import (
    BatchNorm as BatchNorm,
    Dice as Dice,
    Dropout as Dropout,
    L2Norm as L2Norm,
    LogitsTemperatureScaler as LogitsTemperatureScaler,
)
from distrain.models.blocks.members import MemberMLP as MemberMLP
from distrain.models.blocks.mixtures import MMoEBlock as MMoEBlock, PLEBlock as PLEBlock
from distrain.models.blocks.mlp import MLPBlock as MLPBlock
from distrain.models.blocks.transformers import (
    CausalTransformer as CausalTransformer,
    TargetTransformer as TargetTransformer,
)
