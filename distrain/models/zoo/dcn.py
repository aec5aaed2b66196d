"""Deep and cross networks: versions 1 and 2, and with gates."""

from collections.abc import Mapping, Sequence

from distrain.embeddings import Combiner
from distrain.models.blocks import Block, CrossBlock, MLPBlock, ParallelBlock
from distrain.models.blueprint import Blueprint
from distrain.models.heads import BinaryClassificationTask, Task
from distrain.models.inputs import Embeddings, InputBlock
from distrain.schema import Schema


def dcn(
    schema: Schema,
    combiners: Mapping[str, Combiner],
    *,
    embedding_dim: int | None,
    cross_depth: int,
    hidden: Sequence[int],
    structure: str,
    dropout: float,
    head: Task | None = None,
) -> Blueprint:
    """Cross layers with a vector (arXiv:1708.05123, eq. 3) beside an MLP, or below it; one logit.

    The paper's is `parallel`: both take the embeddings and continuous columns, and the logit's
    layer takes both outputs side by side (eq. 5).
    """
    inputs = InputBlock(schema, Embeddings(embedding_dim, combiners=combiners))
    cross = CrossBlock(cross_depth, "v1")
    return _with_mlp(inputs, cross, MLPBlock(hidden, dropout=dropout), structure, head)


def dcn_v2(
    schema: Schema,
    combiners: Mapping[str, Combiner],
    *,
    embedding_dim: int | None,
    cross_depth: int,
    low_rank: int | None,
    hidden: Sequence[int],
    structure: str,
    dropout: float,
    head: Task | None = None,
) -> Blueprint:
    """Cross layers with a matrix (arXiv:2008.13535, eq. 1), of low rank if wanted (eq. 2).

    The MLP is above the crosses or beside them (section 3.2), and one logit above both.
    """
    inputs = InputBlock(schema, Embeddings(embedding_dim, combiners=combiners))
    cross = CrossBlock(cross_depth, "v2", low_rank)
    return _with_mlp(inputs, cross, MLPBlock(hidden, dropout=dropout), structure, head)


def gdcn(
    schema: Schema,
    combiners: Mapping[str, Combiner],
    *,
    embedding_dim: int | None,
    cross_depth: int,
    hidden: Sequence[int],
    structure: str,
    dropout: float,
    head: Task | None = None,
) -> Blueprint:
    """`dcn_v2` with full matrices, and a gate in each cross layer (arXiv:2311.04635, section 4)."""
    inputs = InputBlock(schema, Embeddings(embedding_dim, combiners=combiners))
    cross = CrossBlock(cross_depth, "gated")
    return _with_mlp(inputs, cross, MLPBlock(hidden, dropout=dropout), structure, head)


def _with_mlp(
    inputs: InputBlock, cross: CrossBlock, deep: MLPBlock, structure: str, head: Task | None
) -> Blueprint:
    """Crosses below an MLP ("stacked") or beside it ("parallel"); alone without layers."""
    body: Block = cross.connect(deep)
    if structure == "parallel" and deep.widths:
        body = ParallelBlock({"cross": cross, "deep": deep}, aggregation=None)
    return Blueprint(inputs, body, head or BinaryClassificationTask())
