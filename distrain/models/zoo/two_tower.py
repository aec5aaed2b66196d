"""Two towers: a vector for the user, one for the item, and their dot product."""

from collections.abc import Mapping

from torch import Tensor

from distrain.batch import Batch
from distrain.embeddings.columns import Combiner
from distrain.errors import ModelError
from distrain.models.block import Chain
from distrain.models.blocks.filter import Filter
from distrain.models.blocks.mlp import MLPBlock
from distrain.models.blocks.normalisation import L2Norm
from distrain.models.blocks.parallel import ParallelBlock
from distrain.models.blueprint import Blueprint
from distrain.models.click import ClickModel
from distrain.models.heads.dot_product import DotProductTask
from distrain.models.heads.retrieval import ItemRetrievalTask
from distrain.models.heads.task import Task
from distrain.models.inputs import Embeddings, InputBlock
from distrain.models.shapes import Features, flat
from distrain.models.zoo.sides import ITEM_TAGS, USER_TAGS, id_column, side_columns
from distrain.schema import Schema, Tags
from distrain.spec import TwoTowerSpec


def two_tower(schema: Schema, spec: TwoTowerSpec, combiners: Mapping[str, Combiner]) -> Blueprint:
    """An MLP over the user's columns and one over the item's; columns of neither are left out.

    The last layer of a tower has no activation, as its vector must be able to point anywhere.
    """
    names = side_columns(schema, "two_tower")
    inputs = InputBlock(schema, Embeddings(spec.embedding_dim, names=names, combiners=combiners))
    sides = {"user": USER_TAGS, "item": ITEM_TAGS}
    towers = {side: _tower(tags, spec) for side, tags in sides.items()}
    return Blueprint(inputs, ParallelBlock(towers, aggregation=None), _task(schema, spec))


def _tower(tags: tuple[str, ...], spec: TwoTowerSpec) -> Chain:
    mlp = MLPBlock(spec.tower, no_activation_last_layer=True)
    return Chain([Filter(tags=tags), mlp, *([L2Norm()] if spec.normalize else [])])


def _task(schema: Schema, spec: TwoTowerSpec) -> Task:
    if spec.task == "binary":
        return DotProductTask(temperature=spec.temperature)
    return ItemRetrievalTask(
        item_id=id_column(schema, Tags.ITEM_ID, "two_tower"),
        temperature=spec.temperature,
        log_q=None if spec.log_q == "none" else "batch",
    )


def tower_vectors(model: ClickModel, batch: Batch) -> dict[str, Tensor]:
    """The vectors of the users and of the items of a batch's rows, by "user" and "item".

    To score all items for a user, take the items' vectors of a batch with a row for each item, the
    user's of another, and multiply; what stands in the other side's columns does not matter.

    Returns:
        Each `[rows, last width of the towers]`, of length 1 where the model normalises them. The
        model's logits are their dot products over its temperature, plus a bias if it is a binary
        model's.

    Raises:
        ModelError: The model has no two towers.
        SchemaError: The batch's columns are not the model's.
    """
    body = model.dense.body
    if not isinstance(body, ParallelBlock) or set(body.names) != {"user", "item"}:
        raise ModelError("the model has no tower for the user and none for the item")
    model.check_columns(batch)
    embedded = model.embeddings.lookup(*model.table_ids(batch))
    vectors = body(Features(embedded, batch.continuous))
    assert isinstance(vectors, dict)
    return {side: flat(vector) for side, vector in vectors.items()}
