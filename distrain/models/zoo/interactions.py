"""Models with gates, masks, attention or products of features, beside an MLP."""

from distrain.jobs.spec.models.interactions import (
    AutoIntSpec,
    FinalMlpSpec,
    MaskNetSpec,
    XDeepFmSpec,
)
from distrain.models.blocks.block import Block, Chain, ParallelBlock
from distrain.models.blocks.filter import FieldVectors, Filter
from distrain.models.blocks.gates import BilinearFusion, FeatureGate, MaskNetBlock
from distrain.models.blocks.interaction import CompressedInteraction, FieldAttention
from distrain.models.blocks.mlp import MLPBlock
from distrain.models.blueprint import Blueprint, ModelContext
from distrain.models.heads.tasks import BinaryClassificationTask
from distrain.models.zoo.wide_deep import linear, logit_or_layers, sum_or_parts, wide_tables


def masknet(given: ModelContext, spec: MaskNetSpec) -> Blueprint:
    """Build mask blocks (arXiv:2102.07619), in parallel or in series, below an MLP; one logit."""
    inputs = given.inputs(spec.embedding_dim)
    body = MaskNetBlock(spec.masks, spec.reduction, spec.structure).connect(
        MLPBlock(spec.hidden, dropout=spec.dropout)
    )
    return Blueprint(inputs, body, given.task)


def autoint(given: ModelContext, spec: AutoIntSpec) -> Blueprint:
    """Build attention among the vectors of all columns (arXiv:1810.11921); one logit.

    With `hidden` an MLP over the same inputs is added, like in the paper's AutoInt+, and the
    logit's layer receives both.
    """
    inputs = given.inputs(spec.embedding_dim)
    body: Block = FieldVectors().connect(FieldAttention(spec.layers, spec.heads, spec.width))
    if spec.hidden:
        branches = {"attention": body, "deep": MLPBlock(spec.hidden, dropout=spec.dropout)}
        body = ParallelBlock(branches, aggregation=None)
    return Blueprint(inputs, body, given.task)


def xdeepfm(given: ModelContext, spec: XDeepFmSpec) -> Blueprint:
    """Build a linear model, a compressed interaction network and an MLP (arXiv:1803.05170, eq. 9).

    The logit is the sum of a logit of each part. For the second part, continuous columns become
    vectors as in `autoint`; the paper has no continuous columns. A head other than one binary
    task receives the three parts.
    """
    inputs = given.inputs(spec.embedding_dim, wide_tables(given.combiners))
    last = Chain() if given.head else MLPBlock([1], no_activation_last_layer=True)
    vectors = Filter(part="").connect(FieldVectors())
    branches = {
        "linear": linear(inputs),
        "cin": vectors.connect(CompressedInteraction(spec.maps), last),
        "deep": Filter(part="").connect(logit_or_layers(spec, given.head)),
    }
    return Blueprint(inputs, *sum_or_parts(branches, given.head))


def finalmlp(given: ModelContext, spec: FinalMlpSpec) -> Blueprint:
    """Build two MLPs over gated features, fused by a bilinear form (arXiv:2304.00902); one logit.

    A head other than one binary task receives both MLPs' outputs.
    """
    inputs = given.inputs(spec.embedding_dim)
    streams = {
        name: FeatureGate(spec.gates, context).connect(MLPBlock(widths, dropout=spec.dropout))
        for name, context, widths in (
            ("first", spec.first_context, spec.first),
            ("second", spec.second_context, spec.second),
        )
    }
    both = ParallelBlock(streams, aggregation=None)
    if given.head is not None:
        return Blueprint(inputs, both, given.head)
    fused = both.connect(BilinearFusion(spec.heads))
    return Blueprint(inputs, fused, BinaryClassificationTask(layer=False))
