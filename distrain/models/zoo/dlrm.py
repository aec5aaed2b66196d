"""The deep learning recommendation model (arXiv:1906.00091), alone and beside hashed crosses."""

from collections.abc import Mapping

from distrain.embeddings import Combiner
from distrain.models.blocks import Aggregate, DLRMBlock, Filter, MLPBlock
from distrain.models.blueprint import Blueprint
from distrain.models.heads import BinaryClassificationTask, Task
from distrain.models.inputs import Embeddings, InputBlock
from distrain.models.zoo.wide_deep import WIDE, sum_or_parts, wide_tables
from distrain.schema import Schema
from distrain.spec import DlrmCrossSpec, DlrmSpec


def dlrm(
    schema: Schema, combiners: Mapping[str, Combiner], spec: DlrmSpec, head: Task | None
) -> Blueprint:
    inputs = InputBlock(schema, Embeddings(spec.embedding_dim, combiners=combiners))
    return Blueprint(inputs, DLRMBlock(spec.bottom, spec.top), head or BinaryClassificationTask())


def dlrm_cross(
    schema: Schema, combiners: Mapping[str, Combiner], spec: DlrmCrossSpec, head: Task | None
) -> Blueprint:
    """The logit of DLRM (arXiv:1906.00091) plus one weight for each cross's bin.

    That is Wide & Deep (arXiv:1606.07792, eq. 3) with DLRM as the deep part. A one-hot vector of a
    cross and a linear layer over it, as in Merlin's "customize and extend" notebook, is the same as
    a table of width 1. A head of several tasks takes both parts side by side.
    """
    inputs = InputBlock(
        schema,
        Embeddings(spec.embedding_dim, combiners=combiners),
        wide_tables({}, spec.crosses, names=()),
    )
    deep = Filter(part="").connect(DLRMBlock(spec.bottom, spec.top))
    if head is None:
        deep = deep.connect(MLPBlock([1], no_activation_last_layer=True))
    branches = {"deep": deep, "wide": Filter(part=WIDE).connect(Aggregate("sum"))}
    return Blueprint(inputs, *sum_or_parts(branches, head))
