"""The parts that networks are made of; each a `Block`."""

from distrain.models.block import Block, Chain
from distrain.models.blocks.activation import ACTIVATIONS
from distrain.models.blocks.aggregate import AGGREGATIONS, Aggregate
from distrain.models.blocks.continuous import ContinuousFeatures
from distrain.models.blocks.cross import CrossBlock
from distrain.models.blocks.dlrm import DLRMBlock
from distrain.models.blocks.dropout import Dropout
from distrain.models.blocks.filter import Filter
from distrain.models.blocks.fm import FMBlock
from distrain.models.blocks.hashed_cross import HashedCross
from distrain.models.blocks.interaction import DotProductInteraction
from distrain.models.blocks.mlp import FASTAI_ORDER, USUAL_ORDER, MLPBlock
from distrain.models.blocks.normalisation import NORMALISATIONS, BatchNorm, L2Norm
from distrain.models.blocks.one_hot import one_hot
from distrain.models.blocks.parallel import ParallelBlock
from distrain.models.blocks.temperature import LogitsTemperatureScaler

__all__ = [
    "ACTIVATIONS",
    "AGGREGATIONS",
    "FASTAI_ORDER",
    "NORMALISATIONS",
    "USUAL_ORDER",
    "Aggregate",
    "BatchNorm",
    "Block",
    "Chain",
    "ContinuousFeatures",
    "CrossBlock",
    "DLRMBlock",
    "DotProductInteraction",
    "Dropout",
    "FMBlock",
    "Filter",
    "HashedCross",
    "L2Norm",
    "LogitsTemperatureScaler",
    "MLPBlock",
    "ParallelBlock",
    "one_hot",
]
