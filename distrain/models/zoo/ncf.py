"""Neural collaborative filtering: NeuMF (arXiv:1708.05031)."""

from collections.abc import Mapping

from distrain.embeddings.columns import Combiner
from distrain.models.block import Chain
from distrain.models.blocks.aggregate import Aggregate
from distrain.models.blocks.filter import Filter
from distrain.models.blocks.mlp import MLPBlock
from distrain.models.blocks.parallel import ParallelBlock
from distrain.models.blueprint import Blueprint
from distrain.models.heads.binary import BinaryClassificationTask
from distrain.models.inputs import Embeddings, InputBlock
from distrain.models.zoo.sides import id_column
from distrain.schema import Schema, Tags
from distrain.spec import NcfSpec


def ncf(schema: Schema, spec: NcfSpec, combiners: Mapping[str, Combiner]) -> Blueprint:
    """The product of two embeddings beside an MLP over another two, and one logit of both.

    It takes the two columns tagged `user_id` and `item_id`; all others are left out. The product's
    tables are called `mf/COLUMN`.
    """
    names = [id_column(schema, tag, "ncf") for tag in (Tags.USER_ID, Tags.ITEM_ID)]
    inputs = InputBlock(
        schema,
        Embeddings(spec.mf_dim, part="mf", names=names),
        Embeddings(spec.embedding_dim, names=names, combiners=combiners),
        continuous=False,
    )
    product = Chain([Filter(part="mf"), Aggregate("product")])
    deep = Chain([Filter(part=""), MLPBlock(spec.hidden)])
    body = ParallelBlock({"product": product, "deep": deep}, aggregation=None)
    return Blueprint(inputs, body, BinaryClassificationTask())
