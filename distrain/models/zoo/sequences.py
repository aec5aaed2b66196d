"""Models that compare a row's events with the row's own item: its target."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from distrain.errors import ModelError
from distrain.jobs.spec.models.kinds import (
    BstSpec,
    DinSpec,
    HstuSpec,
    SasrecRetrievalSpec,
    SasrecSpec,
)
from distrain.models.blocks.block import Block, ParallelBlock
from distrain.models.blocks.event_sequences import TargetAttention
from distrain.models.blocks.filter import Filter
from distrain.models.blocks.hstu import HSTUBlock
from distrain.models.blocks.mlp import MLPBlock
from distrain.models.blocks.transformers import (
    CausalTransformer,
    HistoryVector,
    ItemTower,
    NextVector,
    TargetTransformer,
)
from distrain.models.blueprint import Blueprint, ModelContext
from distrain.models.embeddings.columns import Combiner
from distrain.models.inputs import Embeddings, InputBlock
from distrain.models.negative_sampling import ItemDraws
from distrain.models.zoo.two_tower import id_column, item_draws, retrieval_task
from distrain.schema.column import ColumnSchema, Tags
from distrain.schema.schema import Schema

_Spec = DinSpec | BstSpec | SasrecSpec | HstuSpec | SasrecRetrievalSpec
EventTargets = Mapping[str, Mapping[str, str]]
"""For each kind of events, by name: the target's column of each list of ids that has a target."""


def event_targets(schema: Schema, given: Mapping[str, str], model: str) -> EventTargets:
    """Return for each kind of events the target column of each of its lists of ids, by names.

    An example is `{"click": {"clicked_items": "item"}}`. `given` maps names of lists to target
    columns; the target of any other list is the flat column of its domain. Lists without a target
    are omitted. Raises ModelError if no list has a target, or a column in `given` does not exist.
    Also raises it if `given` is empty and a list's domain is shared by several flat columns, none
    of which has the domain's name. `model` is the kind of model, for messages.
    """
    features = schema.remove_by_tag(Tags.TARGET).categorical
    lists = {column.name: column for column in features if column.holds_lists}
    flat = [column for column in features if not column.holds_lists]
    unknown = {*given} - {*lists} | {*given.values()} - {column.name for column in flat}
    if unknown:
        raise ModelError(
            f"model.targets names what the schema does not have: {', '.join(sorted(unknown))}",
            where={"lists of ids": ", ".join(lists), "columns": ", ".join(c.name for c in flat)},
            hint="Map each categorical column of lists to a categorical column with one value per "
            "row.",
        )
    targets: dict[str, dict[str, str]] = {}
    for column in lists.values():
        target = given.get(column.name) or _of_domain(column, flat, may_have_none=bool(given))
        if target:
            targets.setdefault(column.event, {})[column.name] = target
    if not targets:
        raise ModelError(
            f"a {model} model needs events and their target, but the schema has none",
            where={"lists of ids": ", ".join(lists) or "none"},
            hint="Give a list the domain of the row's own column, or name both in model.targets.",
        )
    return targets


def _of_domain(
    column: ColumnSchema, flat: Sequence[ColumnSchema], *, may_have_none: bool
) -> str | None:
    same = [other.name for other in flat if other.domain == column.domain]
    if len(same) < 2 or column.domain in same:
        return column.domain if column.domain in same else next(iter(same), None)
    if may_have_none:
        return None
    raise ModelError(
        f"the events' list {column.name!r} has several columns of its domain: {', '.join(same)}",
        hint="Name its target in model.targets. If it has none, name only the targets of the "
        "other lists.",
    )


def _inputs(
    given: ModelContext,
    events: EventTargets,
    spec: _Spec,
    names: Sequence[str] | None = None,
    draws: ItemDraws | None = None,
) -> InputBlock:
    """Return a model's inputs: the lists of `events`, and the columns `names` (`None`: all)."""
    features = given.schema.remove_by_tag(Tags.TARGET).categorical
    sequences = {c.name: "sequence" for c in features if c.holds_lists and c.event in events}
    both: dict[str, Combiner] = {**given.combiners, **sequences}  # type: ignore[dict-item]
    taken = None if names is None else (*sequences, *names)
    embeddings = Embeddings(
        spec.embedding_dim, names=taken, combiners=both, max_length=spec.max_length
    )
    return InputBlock(given.schema, embeddings, draws=draws)


def _ranked(
    given: ModelContext,
    spec: DinSpec | BstSpec | SasrecSpec | HstuSpec,
    read: Callable[[str, Mapping[str, str]], Block],
    above: MLPBlock,
) -> Blueprint:
    """Build the MLP `above` over the columns, and over one block for each kind of events.

    `read` makes a block from the name of the events and the target of each of their lists.
    """
    events = event_targets(given.schema, spec.targets, spec.kind)
    blocks = [read(name, columns) for name, columns in events.items()]
    body = ParallelBlock(Filter(), *blocks, aggregation=None).connect(above)
    inputs = _inputs(given, events, spec)
    return Blueprint(inputs, body, given.task)


def din(given: ModelContext, spec: DinSpec) -> Blueprint:
    """Build a sum of the events, weighted by the target; the sum and the columns enter an MLP.

    Source: Zhou et al., "Deep Interest Network" (arXiv:1706.06978).
    """
    read = partial(TargetAttention, hidden=spec.attention, activation=spec.activation)
    above = MLPBlock(spec.hidden, spec.activation)
    return _ranked(given, spec, read, above)


def bst(given: ModelContext, spec: BstSpec) -> Blueprint:
    """Build a transformer over the target and its events; its output and the columns enter an MLP.

    Source: Chen et al., "Behavior Sequence Transformer" (arXiv:1905.06874).
    """
    read = partial(
        TargetTransformer, heads=spec.heads, layers=spec.layers, dropout=spec.dropout, grouped=True
    )
    above = MLPBlock(spec.hidden, "leaky_relu")
    return _ranked(given, spec, read, above)


def sasrec(given: ModelContext, spec: SasrecSpec) -> Blueprint:
    """Build causal layers over the events; their output and the columns enter an MLP.

    The layers give the newest event's output, and its elementwise product with the target's vector
    (`CausalTransformer`). Source: Kang and McAuley, "Self-Attentive Sequential Recommendation"
    (arXiv:1808.09781). In the paper, the score is the sum over that product.
    """
    read = partial(CausalTransformer, heads=spec.heads, layers=spec.layers, dropout=spec.dropout)
    return _ranked(given, spec, read, MLPBlock(spec.hidden))


def hstu(given: ModelContext, spec: HstuSpec) -> Blueprint:
    """Build pointwise attention over the events; its result and the columns enter an MLP.

    Source: Zhai et al., "Actions Speak Louder than Words" (arXiv:2402.17152). Each event
    is one token, made of the event's own columns only; the target is the last token.
    """
    read = partial(HSTUBlock, heads=spec.heads, layers=spec.layers, dropout=spec.dropout)
    return _ranked(given, spec, read, MLPBlock(spec.hidden))


def sasrec_retrieval(given: ModelContext, spec: SasrecRetrievalSpec) -> Blueprint:
    """Build a two-tower model of the newest event after causal layers (user) and the target (item).

    The target of the events must be the column tagged `item_id`. If that is so for several kinds of
    events, `spec.targets` must name the list of one kind. Only these events and their targets are
    used. Source: see `sasrec`.

    Raises:
        ModelError: None or several kinds of events have that target, or negatives are drawn and
            the events have further targets.
    """
    schema = given.schema
    item = id_column(schema, Tags.ITEM_ID, "sasrec_retrieval")
    targets = event_targets(schema, spec.targets, "sasrec_retrieval")
    events = {
        name: columns
        for name, columns in targets.items()
        if item in columns.values() and (not spec.targets or {*spec.targets} & {*columns})
    }
    if len(events) != 1:
        raise ModelError(
            f"a sasrec_retrieval model needs one kind of events with the target {item!r}",
            where={"events with it": ", ".join(events) or "none"},
            hint="Name the list of the events' items and that column in model.targets.",
        )
    ((name, columns),) = events.items()
    items = next(listed for listed, target in columns.items() if target == item)
    user = HistoryVector(
        name, columns, spec.heads, spec.layers, spec.dropout, every=spec.every_event
    )
    towers: dict[str, Block] = {
        "user": user,
        "item": NextVector(name, columns, every=spec.every_event),
    }
    draws = item_draws(schema, spec)
    if draws is not None:
        if len(columns) > 1:
            raise ModelError(
                f"negatives of a sasrec_retrieval model are drawn by {item!r} alone, but its "
                f"events have more targets: {', '.join(columns.values())}",
                hint="Set model.negatives to batch, or leave the others out of the schema.",
            )
        towers["item"] = ItemTower(towers["item"])
    head = retrieval_task(schema, spec, draws, items)
    inputs = _inputs(given, events, spec, tuple(columns.values()), draws)
    return Blueprint(inputs, ParallelBlock(towers, aggregation=None), head)
