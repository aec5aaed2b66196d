"""Matches saved weights with the tensors of a model; values are not read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from distrain.models.embeddings.columns import TableColumn, TablePlace, table_places
from distrain.models.heads.members import MemberTask
from distrain.models.heads.multitask import MultiTask, name_by_task
from distrain.models.heads.tasks import Task
from distrain.train.data.vocabularies import Vocabularies, VocabularyFile

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Side:
    """One side of a match: the weights on disk, or the model into which they are copied."""

    columns: Sequence[TableColumn]
    dense: Shapes
    vocabularies: Vocabularies  # the vocabularies of its ids, if known
    hashed: frozenset[str] = frozenset()  # columns whose ids are hashes that the model computes
    task: Task | None = None  # the model's task; `None` if unknown


@dataclass(frozen=True)
class TableMatch:
    """A table of the new model, and the saved table, if any, from which it gets its rows."""

    target: TablePlace
    # the table on disk; `None` if the rows keep their initial values
    source: TablePlace | None = None
    # the files that translate ids, old and new; `None` if ids are equal
    vocabularies: tuple[VocabularyFile, VocabularyFile] | None = None

    @property
    def by(self) -> Literal["id", "value", "fresh"]:
        if self.source is None:
            return "fresh"
        return "id" if self.vocabularies is None else "value"


@dataclass
class Match:
    """The matched tensors, and messages about mismatches.

    `dense` maps names of the new model's dense tensors to names of those that they are read from.
    """

    tables: list[TableMatch] = field(default_factory=list)
    dense: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def match(source: Side, target: Side) -> Match:
    """Match tables by column and vocabulary, dense tensors by name and shape.

    If one of the models has several tasks or members, the tensors of tasks are matched by task
    name. Optimizer state is not matched for parameters that keep their initial values. Exception:
    the optimizer holds all dense parameters in one vector, so they get the count of steps of the
    matched ones.
    """
    found = Match()
    _match_tables(source, target, found)
    wrappers = (MultiTask, MemberTask)
    has_several = any(isinstance(side.task, wrappers) for side in (source, target))
    old, new = (_names(side, has_several) for side in (source, target))
    unmatched: set[str] = set()
    for name in sorted({*old, *new}):
        was, now = source.dense.get(old.get(name, "")), target.dense.get(new.get(name, ""))
        if was == now:
            if _parameter_of(name) not in unmatched:
                found.dense[new[name]] = old[name]
        else:
            unmatched.add(name)
            found.problems.append(f"{name} was {_shape(was)} and is {_shape(now)}")
    return found


def _names(side: Side, by_task: bool) -> dict[str, str]:
    """Return the names of a side's dense tensors, by the names under which they are compared.

    With `by_task`, these have the names of tasks instead of numbers (`name_by_task`).
    """
    if not by_task or side.task is None:
        return {name: name for name in side.dense}
    return {name_by_task(side.task, name): name for name in side.dense}


def _parameter_of(name: str) -> str:
    """Return the name of the parameter to which a tensor of optimizer state belongs.

    Names of other tensors are returned unchanged.

    >>> _parameter_of("dense_optimizer.mlp.0.bias.step")
    'dense.mlp.0.bias'
    """
    kind, _, rest = name.partition(".")
    return f"dense.{rest.rpartition('.')[0]}" if kind == "dense_optimizer" else name


def _match_tables(source: Side, target: Side, found: Match) -> None:
    """Add the matches of the target's tables to `found`, and problems of both sides' tables.

    A table that does not fit is a problem, and so is a table of the source whose columns the target
    lacks. Crosses of columns whose ids have moved are not matched (`_refuse_moved_crosses`).
    """
    old = {column: place for place in table_places(source.columns) for column in place.columns}
    taken: set[str] = set()
    moved = _moved_columns(source, target)
    for place in table_places(target.columns):
        were = {old[column].name: old[column] for column in place.columns if column in old}
        taken |= were.keys()
        matched = TableMatch(place)
        try:
            matched = _match_table(place, list(were.values()), source, target)
        except _Unfit as problem:
            found.problems.append(f"table {place.name}: {problem}")
            if problem.ids_moved:
                moved += [column for column in place.columns if column not in moved]
        found.tables.append(matched)
    if moved:
        _refuse_moved_crosses(target, found, moved)
    found.problems += [
        f"table {place.name}: the model has none of its columns ({', '.join(place.columns)})"
        for place in table_places(source.columns)
        if place.name not in taken
    ]


class _Unfit(Exception):
    """The reason why a table does not fit.

    `ids_moved` is True if its ids may have other meanings than in the saved model.
    """

    def __init__(self, problem: str, *, ids_moved: bool = False):
        self.ids_moved = ids_moved
        super().__init__(problem)


def _match_table(
    now: TablePlace, were: Sequence[TablePlace], source: Side, target: Side
) -> TableMatch:
    """Return the match of a table of the new model with the saved tables of its columns, `were`.

    Raises `_Unfit` unless there is exactly one such table, whose rows can be used.
    """
    if not were:
        raise _Unfit(f"there was no table of its columns ({', '.join(now.columns)})")
    if len(were) > 1:
        names = ", ".join(place.name for place in were)
        raise _Unfit(f"its columns share it, and had tables of their own: {names}")
    (was,) = were
    if was.dim != now.dim:
        raise _Unfit(f"its embeddings had the width {was.dim} and have {now.dim}")
    old, new = _vocabulary(was, source), _vocabulary(now, target)
    if old is not None and new is not None:
        if old.xxh3_64 == new.xxh3_64:
            return TableMatch(now, was)
        if not old.is_unchanged:
            raise _Unfit(
                f"the vocabulary that its ids were of is no longer in {old.folder}; restore it, "
                "or prepare the data with the vocabularies that the weights were trained with "
                "(`distrain prep --workflow`)"
            )
        return TableMatch(now, was, (old, new))
    # `prep` does not add values to a vocabulary, so another number of rows means another
    # vocabulary.
    one_known = (old is None) != (new is None)
    if now.cardinality < was.cardinality or (one_known and now.cardinality > was.cardinality):
        side = "the weights were trained with" if old is None else "this data was prepared with"
        raise _Unfit(
            f"it had {was.cardinality:,} rows and has {now.cardinality:,}, and the vocabulary that "
            f"{side} is not known, so no id is known to mean the same; prepare the data with "
            "the same workflow (`distrain prep --workflow`)",
            ids_moved=True,
        )
    if now.cardinality > was.cardinality and target.hashed.intersection(now.columns):
        raise _Unfit(
            f"it had {was.cardinality:,} rows and has {now.cardinality:,}, and its ids are hashes "
            "modulo that number"
        )
    return TableMatch(now, was)


def _moved_columns(source: Side, target: Side) -> list[str]:
    """Return the columns whose vocabularies are known on both sides and differ."""
    old, new = source.vocabularies.files, target.vocabularies.files
    return [name for name in new if name in old and old[name].xxh3_64 != new[name].xxh3_64]


def _refuse_moved_crosses(target: Side, found: Match, moved: Sequence[str]) -> None:
    """Remove the matches of all hashed crosses' tables from `found`, and add a problem for each.

    The ids of a cross are hashes of other columns' ids. In the columns `moved`, ids have another
    meaning than in the saved model. The matches of all crosses are removed, also of those without
    such a column, because their columns are not known here.
    """
    for number, matched in enumerate(found.tables):
        if matched.source and target.hashed.intersection(matched.target.columns):
            found.tables[number] = TableMatch(matched.target)
            found.problems.append(
                f"table {matched.target.name}: its ids are hashes of other columns' ids, and those "
                f"of {', '.join(moved)} have moved"
            )


def _vocabulary(place: TablePlace, side: Side) -> VocabularyFile | None:
    """Return the vocabulary of a table's ids, the same for all its columns; `None` if unknown."""
    for column in place.columns:
        # The table of a part of a model is called PART/COLUMN.
        for name in (column, column.partition("/")[2]):
            if name in side.vocabularies.files:
                return side.vocabularies.files[name]
    return None


def _shape(shape: tuple[int, ...] | None) -> str:
    return "not there" if shape is None else str(list(shape))
