"""The deep learning recommendation model (arXiv:1906.00091)."""

from collections.abc import Mapping

from distrain.embeddings.columns import Combiner
from distrain.models.blocks.dlrm import DLRMBlock
from distrain.models.blueprint import Blueprint
from distrain.models.heads.binary import BinaryClassificationTask
from distrain.models.inputs import Embeddings, InputBlock
from distrain.schema import Schema
from distrain.spec import DlrmSpec


def dlrm(schema: Schema, spec: DlrmSpec, combiners: Mapping[str, Combiner]) -> Blueprint:
    """Bottom MLP, dot products of all pairs of vectors, top MLP, one logit."""
    inputs = InputBlock(schema, Embeddings(spec.embedding_dim, combiners=combiners))
    return Blueprint(inputs, DLRMBlock(spec.bottom, spec.top), BinaryClassificationTask())
