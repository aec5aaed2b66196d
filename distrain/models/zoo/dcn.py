"""Deep and cross networks."""

from distrain.jobs.spec.models.kinds import DcnSpec, DcnV2Spec, GdcnSpec
from distrain.models.blocks.block import Block, ParallelBlock
from distrain.models.blocks.cross import CrossBlock
from distrain.models.blocks.mlp import MLPBlock
from distrain.models.blueprint import Blueprint, Given


def dcn(given: Given, spec: DcnSpec) -> Blueprint:
    """Cross layers with a vector (arXiv:1708.05123, eq. 3) beside an MLP, or below it; one logit.

    The paper's is `parallel`: both take the embeddings and continuous columns, and the logit's
    layer takes both outputs side by side (eq. 5).
    """
    return _with_mlp(given, spec, CrossBlock(spec.cross_depth, "v1"))


def dcn_v2(given: Given, spec: DcnV2Spec) -> Blueprint:
    """Cross layers with a matrix (arXiv:2008.13535, eq. 1), of low rank if wanted (eq. 2).

    The MLP is above the crosses or beside them (section 3.2), and one logit above both.
    """
    cross = CrossBlock(spec.cross_depth, "v2", spec.low_rank)
    return _with_mlp(given, spec, cross)


def gdcn(given: Given, spec: GdcnSpec) -> Blueprint:
    """`dcn_v2` with full matrices, and a gate in each cross layer (arXiv:2311.04635, section 4)."""
    return _with_mlp(given, spec, CrossBlock(spec.cross_depth, "gated"))


def _with_mlp(given: Given, spec: DcnSpec | DcnV2Spec | GdcnSpec, cross: CrossBlock) -> Blueprint:
    """Crosses below an MLP ("stacked") or beside it ("parallel"); alone without layers."""
    inputs = given.inputs(spec.embedding_dim)
    deep = MLPBlock(spec.hidden, dropout=spec.dropout)
    body: Block = cross.connect(deep)
    if spec.structure == "parallel" and deep.widths:
        body = ParallelBlock({"cross": cross, "deep": deep}, aggregation=None)
    return Blueprint(inputs, body, given.task)
