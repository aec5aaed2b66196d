"""Models that score a user's columns against an item's, chosen by tags: two towers, and NeuMF."""

from torch import Tensor

from distrain.errors import ModelError
from distrain.jobs.spec.models.kinds import NcfSpec, SasrecRetrievalSpec, TwoTowerSpec
from distrain.loader.batch import Batch
from distrain.models.blocks.block import Aggregate, Block, Chain, ParallelBlock
from distrain.models.blocks.filter import Filter
from distrain.models.blocks.layers import L2Norm
from distrain.models.blocks.mlp import MLPBlock
from distrain.models.blocks.transformers import ItemTower
from distrain.models.blueprint import Blueprint, ModelContext
from distrain.models.click_model import ClickModel
from distrain.models.heads.retrieval import ItemRetrievalTask
from distrain.models.heads.tasks import Task
from distrain.models.heads.towers import DotProductTask
from distrain.models.inputs import Embeddings, InputBlock
from distrain.models.negative_sampling import ItemDraws
from distrain.models.shapes import flat
from distrain.schema.column import Tags
from distrain.schema.schema import Schema

USER_TAGS = (Tags.USER, Tags.USER_ID)
ITEM_TAGS = (Tags.ITEM, Tags.ITEM_ID)


def side_columns(schema: Schema, model: str) -> tuple[str, ...]:
    """Return the categorical columns of user and item, by their tags.

    Raises ModelError if either has no column, categorical or continuous. `model` is the kind of
    model, for messages.
    """
    features = schema.remove_by_tag(Tags.TARGET)
    taken = features.select_by_tag(Tags.CATEGORICAL, Tags.CONTINUOUS)
    for side, tags in (("user", USER_TAGS), ("item", ITEM_TAGS)):
        if not len(taken.select_by_tag(*tags)):
            raise ModelError(
                f"a {model} model needs columns of the {side}, but the schema has no column with "
                "their tags",
                where={"columns": ", ".join(taken.names)},
                hint=f"Tag them `{tags[0]}` or `{tags[1]}`, besides `categorical` or `continuous`.",
            )
    return taken.select_by_tag(*USER_TAGS, *ITEM_TAGS).categorical.names


def id_column(schema: Schema, tag: Tags, model: str) -> str:
    """Return the only flat categorical column with a tag.

    Targets and list columns do not count. Raises `ModelError` if there is none or several; `model`
    is the model's name in the error.
    """
    tagged = schema.remove_by_tag(Tags.TARGET).categorical.select_by_tag(tag)
    flat = [column.name for column in tagged if not column.holds_lists]
    if len(flat) != 1:
        lists = [column.name for column in tagged if column.holds_lists]
        listed = f"these have it: {', '.join(flat)}" if flat else "none has it"
        raise ModelError(
            f"a {model} model needs one categorical column with the tag `{tag}`, but {listed}",
            where={"lists with it": ", ".join(lists)} if lists else None,
            hint="Set the tags in the schema; a column of lists does not count.",
        )
    return flat[0]


def retrieval_task(
    schema: Schema,
    spec: TwoTowerSpec | SasrecRetrievalSpec,
    draws: ItemDraws | None,
    events: str | None = None,
) -> ItemRetrievalTask:
    """Return the retrieval task for the column tagged `item_id`.

    It also uses the column tagged `user_id` if exactly one flat column has that tag. `events` is
    the list column of the items of a row's events. Raises the errors of `id_column`.
    """
    item = id_column(schema, Tags.ITEM_ID, spec.kind)
    users = schema.remove_by_tag(Tags.TARGET).categorical.select_by_tag(Tags.USER_ID)
    names = [column.name for column in users if not column.holds_lists]
    return ItemRetrievalTask(
        item_id=item,
        user_id=names[0] if len(names) == 1 else None,
        temperature=spec.temperature,
        log_q=None if spec.log_q == "none" else spec.log_q,
        kind=spec.loss,
        num_items=schema[item].cardinality,
        events=events,
        draws=draws,
    )


def item_draws(schema: Schema, spec: TwoTowerSpec | SasrecRetrievalSpec) -> ItemDraws | None:
    """Return the object that draws the negatives, as the model section says.

    Returns `None` if the negatives are the items of the batch's other rows.
    """
    if spec.negatives == "batch":
        return None
    item = id_column(schema, Tags.ITEM_ID, spec.kind)
    return ItemDraws(item, schema[item].cardinality or 0, spec.num_negatives, spec.negatives)


def two_tower(given: ModelContext, spec: TwoTowerSpec) -> Blueprint:
    """Build an MLP over the user's columns and another over the item's; no other columns are used.

    The last layer of a tower has no activation, so that its vector can have any direction.
    """
    schema = given.schema
    names = side_columns(schema, "two_tower")
    draws = item_draws(schema, spec)
    embeddings = Embeddings(spec.embedding_dim, names=names, combiners=given.combiners)
    inputs = InputBlock(schema, embeddings, draws=draws)
    towers: dict[str, Block] = {}
    for side, tags in (("user", USER_TAGS), ("item", ITEM_TAGS)):
        mlp = MLPBlock(spec.tower, no_activation_last_layer=True)
        layers = [mlp, *([L2Norm()] if spec.normalize else [])]
        towers[side] = Chain([Filter(tags=tags), *layers])
    if draws is not None:
        _check_items(schema, draws)
        towers["item"] = ItemTower(Filter(draws.column), Chain(layers))
    head: Task = DotProductTask(temperature=spec.temperature)
    if spec.task == "retrieval":
        head = retrieval_task(schema, spec, draws)
    return Blueprint(inputs, ParallelBlock(towers, aggregation=None), head)


def _check_items(schema: Schema, draws: ItemDraws) -> None:
    features = schema.remove_by_tag(Tags.TARGET)
    taken = features.select_by_tag(Tags.CATEGORICAL, Tags.CONTINUOUS).select_by_tag(*ITEM_TAGS)
    others = [name for name in taken.names if name != draws.column]
    if others:
        raise ModelError(
            f"negatives of a two_tower model are drawn by {draws.column!r} alone, but its items "
            f"have more columns: {', '.join(others)}",
            hint="Set model.negatives to batch, or remove these columns' tags.",
        )


def check_towers(model: ClickModel) -> ParallelBlock:
    """Return the two towers of a model; `ModelError` if it has none."""
    body = model.dense.body
    if not isinstance(body, ParallelBlock) or set(body.names) != {"user", "item"}:
        raise ModelError(
            "the model has no towers for user and item",
            hint="`distrain init two_tower` and `distrain init sasrec_retrieval` write jobs of "
            "models that have both.",
        )
    return body


def tower_vectors(model: ClickModel, batch: Batch) -> dict[str, Tensor]:
    """Return the vectors of the users and of the items of a batch's rows, by "user" and "item".

    To score all items for a user, make a batch with a row for each item and a batch with a row of
    the user, and multiply the former's item vectors by the latter's user vector. The values of the
    user's columns do not affect the item vectors, nor those of the item's columns the user vectors.

    Returns:
        Each `[rows, last width of the towers]`, of length 1 if the model normalises them. The
        model's logits are the dot products divided by the temperature, plus a bias for a binary
        model.

    Raises:
        ModelError: The model is not a two-tower model.
        SchemaError: The batch's columns are not the model's.
    """
    body = check_towers(model)
    model.check_columns(batch)
    embedded = model.embeddings.lookup(*model.table_ids(batch))
    lists = model.inputs.event_lists(batch)
    vectors = body(model.dense.features(embedded, batch.continuous, lists))
    assert isinstance(vectors, dict)
    return {side: flat(vector) for side, vector in vectors.items()}


def ncf(given: ModelContext, spec: NcfSpec) -> Blueprint:
    """Build the product of two embeddings beside an MLP over another two, and one logit of both.

    Only the two columns tagged `user_id` and `item_id` are used. The product's tables are called
    `mf/COLUMN`.
    """
    names = [id_column(given.schema, tag, "ncf") for tag in (Tags.USER_ID, Tags.ITEM_ID)]
    inputs = InputBlock(
        given.schema,
        Embeddings(spec.mf_dim, part="mf", names=names),
        Embeddings(spec.embedding_dim, names=names, combiners=given.combiners),
        continuous=False,
    )
    product = Chain([Filter(part="mf"), Aggregate("product")])
    deep = Chain([Filter(part=""), MLPBlock(spec.hidden)])
    body = ParallelBlock({"product": product, "deep": deep}, aggregation=None)
    return Blueprint(inputs, body, given.task)
