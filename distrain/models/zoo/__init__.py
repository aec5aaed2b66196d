"""The models that a job spec can name, each a function of a schema and its options."""

from collections.abc import Callable, Mapping
from typing import Any

from distrain.embeddings import Combiner
from distrain.models.blueprint import Blueprint
from distrain.models.custom import custom
from distrain.models.zoo.dcn import dcn, dcn_v2
from distrain.models.zoo.dlrm import dlrm, dlrm_cross
from distrain.models.zoo.mlp import mlp, tabular
from distrain.models.zoo.two_tower import ncf, two_tower
from distrain.models.zoo.wide_deep import deepfm, wide_deep
from distrain.schema import Schema

MakeModel = Callable[[Schema, Any, Mapping[str, Combiner]], Blueprint]

MODELS: dict[str, MakeModel] = {
    "custom": custom,
    "dcn": dcn,
    "dcn_v2": dcn_v2,
    "deepfm": deepfm,
    "dlrm": dlrm,
    "dlrm_cross": dlrm_cross,
    "mlp": mlp,
    "ncf": ncf,
    "tabular": tabular,
    "two_tower": two_tower,
    "wide_deep": wide_deep,
}
"""By `kind`."""
