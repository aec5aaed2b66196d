"""Which columns are the user's and which the item's, by their tags."""

from distrain.errors import ModelError
from distrain.schema import Schema, Tags

USER_TAGS = (Tags.USER, Tags.USER_ID)
ITEM_TAGS = (Tags.ITEM, Tags.ITEM_ID)


def side_columns(schema: Schema, model: str) -> tuple[str, ...]:
    """The categorical columns of the two sides, in schema order.

    Raises:
        ModelError: A side has no column that a model can take.
    """
    features = schema.remove_by_tag(Tags.TARGET)
    taken = features.select_by_tag(Tags.CATEGORICAL, Tags.CONTINUOUS)
    for side, tags in (("user", USER_TAGS), ("item", ITEM_TAGS)):
        if not len(taken.select_by_tag(*tags)):
            raise ModelError(
                f"a {model} model needs columns of the {side}, and the schema tags none so",
                where={"columns": ", ".join(taken.names)},
                hint=f"Tag them `{tags[0]}` or `{tags[1]}`, besides `categorical` or `continuous`.",
            )
    return taken.select_by_tag(*USER_TAGS, *ITEM_TAGS).categorical.names


def id_column(schema: Schema, tag: Tags, model: str) -> str:
    """The one flat categorical column that carries a tag, such as `item_id`.

    Raises:
        ModelError: There is none, or more than one.
    """
    tagged = schema.remove_by_tag(Tags.TARGET).categorical.select_by_tag(tag)
    flat = [column.name for column in tagged if not column.holds_lists]
    if len(flat) != 1:
        lists = [column.name for column in tagged if column.holds_lists]
        found = f"these have it: {', '.join(flat)}" if flat else "none has it"
        raise ModelError(
            f"a {model} model needs one categorical column with the tag `{tag}`, and {found}",
            where={"lists with it": ", ".join(lists)} if lists else None,
            hint="Set the tags in the schema; a column of lists cannot be the one.",
        )
    return flat[0]
