"""DLRM, alone and beside a linear part."""

from distrain.jobs.spec.models.kinds import DlrmCrossSpec, DlrmSpec
from distrain.models.blocks.block import Aggregate
from distrain.models.blocks.filter import Filter
from distrain.models.blocks.interaction import DLRMBlock
from distrain.models.blocks.mlp import MLPBlock
from distrain.models.blueprint import Blueprint, ModelContext
from distrain.models.zoo.wide_deep import WIDE, sum_or_parts, wide_tables


def dlrm(given: ModelContext, spec: DlrmSpec) -> Blueprint:
    """Build the deep learning recommendation model (arXiv:1906.00091)."""
    inputs = given.inputs(spec.embedding_dim)
    return Blueprint(inputs, DLRMBlock(spec.bottom, spec.top), given.task)


def dlrm_cross(given: ModelContext, spec: DlrmCrossSpec) -> Blueprint:
    """Build DLRM (arXiv:1906.00091) with one weight for each bin of each cross added to its logit.

    This is Wide & Deep (arXiv:1606.07792, eq. 3) with DLRM as the deep part. Merlin's "customize
    and extend" notebook has a one-hot vector of a cross and a linear layer over it, which equals a
    table of width 1. A head other than one binary task receives both parts.
    """
    inputs = given.inputs(spec.embedding_dim, wide_tables({}, spec.crosses, names=()))
    deep = Filter(part="").connect(DLRMBlock(spec.bottom, spec.top))
    if given.head is None:
        deep = deep.connect(MLPBlock([1], no_activation_last_layer=True))
    branches = {"deep": deep, "wide": Filter(part=WIDE).connect(Aggregate("sum"))}
    return Blueprint(inputs, *sum_or_parts(branches, given.head))
