"""Deep and cross networks, versions 1 and 2."""

from collections.abc import Mapping, Sequence

from distrain.embeddings import Combiner
from distrain.models.blocks import Block, CrossBlock, MLPBlock, ParallelBlock
from distrain.models.blueprint import Blueprint
from distrain.models.heads import BinaryClassificationTask
from distrain.models.inputs import Embeddings, InputBlock
from distrain.schema import Schema
from distrain.spec import DcnSpec, DcnV2Spec


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


def dcn_v2(schema: Schema, spec: DcnV2Spec, combiners: Mapping[str, Combiner]) -> Blueprint:
    """Cross layers with a matrix (arXiv:2008.13535, eq. 1), of low rank if wanted (eq. 2).

    The MLP is above the crosses or beside them (section 3.2), and one logit above both.
    """
    inputs = InputBlock(schema, Embeddings(spec.embedding_dim, combiners=combiners))
    cross = CrossBlock(spec.cross_depth, "v2", spec.low_rank)
    body = crosses_and_mlp(cross, spec.hidden, spec.structure)
    return Blueprint(inputs, body, BinaryClassificationTask())
