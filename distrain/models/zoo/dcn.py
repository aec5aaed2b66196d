"""Deep and cross networks."""

from distrain.jobs.spec.models.kinds import DcnSpec, DcnV2Spec, GdcnSpec
from distrain.models.blocks.block import Block, ParallelBlock
from distrain.models.blocks.cross import CrossBlock
from distrain.models.blocks.mlp import MLPBlock
from distrain.models.blueprint import Blueprint, ModelContext


def dcn(given: ModelContext, spec: DcnSpec) -> Blueprint:
    """Build cross layers with a vector (arXiv:1708.05123, eq. 3) beside or below an MLP; one logit.

    The paper's structure is `parallel`: cross layers and MLP both receive the embeddings and
    continuous columns, and the logit's layer receives both outputs (eq. 5).
    """
    return _with_mlp(given, spec, CrossBlock(spec.cross_depth, "v1"))


def dcn_v2(given: ModelContext, spec: DcnV2Spec) -> Blueprint:
    """Build cross layers with a matrix (arXiv:2008.13535, eq. 1), optionally of low rank (eq. 2).

    The MLP is above the cross layers or beside them (section 3.2), with one logit above both.
    """
    cross = CrossBlock(spec.cross_depth, "v2", spec.low_rank)
    return _with_mlp(given, spec, cross)


def gdcn(given: ModelContext, spec: GdcnSpec) -> Blueprint:
    """Build `dcn_v2` with full matrices and a gate in each cross layer (arXiv:2311.04635)."""
    return _with_mlp(given, spec, CrossBlock(spec.cross_depth, "gated"))


def _with_mlp(
    given: ModelContext, spec: DcnSpec | DcnV2Spec | GdcnSpec, cross: CrossBlock
) -> Blueprint:
    """Build cross layers below an MLP ("stacked") or beside it ("parallel"); an MLP is optional."""
    inputs = given.inputs(spec.embedding_dim)
    deep = MLPBlock(spec.hidden, dropout=spec.dropout)
    body: Block = cross.connect(deep)
    if spec.structure == "parallel" and deep.widths:
        body = ParallelBlock({"cross": cross, "deep": deep}, aggregation=None)
    return Blueprint(inputs, body, given.task)
