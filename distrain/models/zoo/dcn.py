"""The deep and cross network."""

from collections.abc import Mapping, Sequence

from distrain.embeddings.columns import Combiner
from distrain.models.block import Block
from distrain.models.blocks.cross import CrossBlock
from distrain.models.blocks.mlp import MLPBlock
from distrain.models.blocks.parallel import ParallelBlock
from distrain.models.blueprint import Blueprint
from distrain.models.heads.binary import BinaryClassificationTask
from distrain.models.inputs import Embeddings, InputBlock
from distrain.schema import Schema
from distrain.spec.models import DcnSpec


def dcn(schema: Schema, spec: DcnSpec, combiners: Mapping[str, Combiner]) -> Blueprint:
    """Cross layers with a vector (arXiv:1708.05123, eq. 3) beside an MLP, or below it; one logit.

    The paper's is `parallel`: both take the embeddings and continuous columns, and the logit's
    layer takes both outputs side by side (eq. 5).
    """
    inputs = InputBlock(schema, Embeddings(spec.embedding_dim, combiners=combiners))
    body = crosses_and_mlp(CrossBlock(spec.cross_depth, "v1"), spec.hidden, spec.structure)
    return Blueprint(inputs, body, BinaryClassificationTask())


def crosses_and_mlp(cross: CrossBlock, hidden: Sequence[int], structure: str) -> Block:
    """Crosses below an MLP ("stacked") or beside it ("parallel"); alone, if there is no layer."""
    if structure == "stacked" or not hidden:
        return cross.connect(MLPBlock(hidden))
    return ParallelBlock({"cross": cross, "deep": MLPBlock(hidden)}, aggregation=None)
