"""Infers a features document from some rows of the inputs, with the reasons as comments."""

from __future__ import annotations

import base64
import os
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distrain.errors import DataError
from distrain.formatting import join_names
from distrain.jobs.spec.load import dump_yaml, parse_yaml
from distrain.prep.bad_lines import BadLineTally
from distrain.prep.features.bad_values import BadValues, Places
from distrain.prep.features.config import FeatureConfig
from distrain.prep.features.document import CRITEO, FormatSpec
from distrain.prep.features.inference.column_facts import (
    NULL_TEXTS,
    Facts,
    decimal_point_of,
    facts_of,
)
from distrain.prep.features.inference.later_rows import Rows, rows_by_time
from distrain.prep.features.inference.leaks import reveals_target
from distrain.prep.features.inference.learnable import (
    Labels,
    is_learnable,
    predicts_classes,
    sampled_labels,
    strongest_pairs,
    strongest_pairs_of_classes,
)
from distrain.prep.features.inference.odd_values import (
    OddValues,
    Origin,
    odd_values_of,
)
from distrain.prep.features.inference.suggest import (
    NAMES_PART,
    SAYS_PART,
    Feature,
    Suggestion,
    Target,
    may_be_crossed,
    more_targets_of,
    of_pair,
    part_for_validation,
    suggestion_of,
    target_of,
    windows_of,
    with_further,
    without_hashed,
)
from distrain.prep.features.inference.user_choices import UserChoices
from distrain.prep.features.partitions import partitions_of, with_partitions
from distrain.prep.features.table_file import (
    SHOWN_COLUMNS,
    TableFile,
    holds_criteo_lines,
    look_at,
)
from distrain.prep.features.targets import TargetSpec, known_name
from distrain.prep.features.text_rows import rows_of_pieces
from distrain.prep.features.values import flat
from distrain.prep.operators.operator import concrete
from distrain.prep.parts import readable_parquet
from distrain.prep.text_files.byte_ranges import TextRange, read_pieces
from distrain.prep.vocabulary import is_text, mistake_of_name
from distrain.schema.criteo import CATEGORICAL, LABEL
from distrain.storage.inputs import InputFile

_MOST_FILES = 8
_MOST_SMALL = 256
"""If there are at most this many files, with at most `_TEXT_BYTES` together, all are sampled."""
_TEXT_BYTES = 16 << 20
_ROW = "row (from 0)"  # as in the errors of `prep`
SAMPLE_ROWS = 100_000


@dataclass(frozen=True, eq=False)
class FirstRows:
    """The first rows of a file."""

    table: pa.Table
    numbers: Places  # each row's line in a text file, from 1, or row in a parquet file, from 0
    bad_lines: BadLineTally  # the bad lines before the last of these rows


@dataclass(frozen=True, eq=False)
class Sample:
    """Some rows of the inputs, from which a features document is inferred."""

    table: pa.Table  # each column of the inputs; for CSV as texts
    rows_text: str  # which rows were sampled, in words
    file: TableFile
    text: FormatSpec  # how text is read
    # the sampled lines that are not rows
    bad_lines: BadLineTally = field(default_factory=BadLineTally)
    has_all_rows: bool = False  # False too if that is not known
    origins: tuple[Origin, ...] = ()  # where the rows come from, in their order
    # columns that Arrow wrote as dictionaries, such as pandas' `category`
    dictionaries: frozenset[str] = frozenset()
    null_texts: tuple[str, ...] = NULL_TEXTS  # texts that may mean a missing value
    time: str | None = None  # the column that has times, as the user says
    # columns that the first file lacks, each with a file that has it
    later: Mapping[str, str] = field(default_factory=dict)


def sampled(files: Sequence[InputFile], most_rows: int = SAMPLE_ROWS) -> Sample:
    """Return the first rows of the inputs' files; of many large files, of every n-th, at most 8.

    Each file gives about the same share of `most_rows`.

    Raises:
        DataError: A file cannot be read or, unless it holds JSON lines, lacks columns of an earlier
            file; or there are no rows.
    """
    is_small = len(files) <= _MOST_SMALL and sum(f.size_bytes for f in files) <= _TEXT_BYTES
    step = 1 if is_small else -(-len(files) // _MOST_FILES)
    chosen = files[::step]
    folders = partitions_of([file.path for file in files], {})[::step]
    text = FormatSpec(kind=CRITEO) if holds_criteo_lines(chosen[0].path) else FormatSpec()
    first = look_at(chosen[0].path, chosen[0].size_bytes, text)
    if text.kind != CRITEO and not first.is_typed and not _is_utf8(first):
        text = FormatSpec(encoding="latin-1")
    tables, origins, bad_lines, has_all_rows = [], [], BadLineTally(), step == 1
    later: dict[str, str] = {}
    first = replace(first, folders=folders[0])
    for chosen_file, values in zip(chosen, folders, strict=True):
        file = look_at(chosen_file.path, chosen_file.size_bytes, text)
        file = replace(file, folders=values)
        lacking = [name for name in first.columns if name not in file.columns]
        if lacking and file.kind != "jsonl":
            raise DataError(
                f"the file lacks the columns {', '.join(lacking[:5])} of an earlier file",
                where={"file": file.path, "earlier file": first.path},
                hint="Use files of one table only.",
            )
        for name in file.columns:
            if name not in first.columns:
                later.setdefault(name, file.path)
        most = max(1, most_rows // len(chosen))
        rows = rows_of(file, text, list(first.types), most)
        has_all_rows &= _holds_at_most(file, most, rows.table)
        bad_lines = bad_lines.merged(rows.bad_lines)
        found = with_partitions(rows.table, values)
        for name in lacking:
            found = found.append_column(name, pa.nulls(found.num_rows))
        tables.append(found.select(list(first.columns)))
        origins.append(Origin(file.path, "line" if file.is_text else _ROW, rows.numbers))
    table = _joined(chosen, tables).combine_chunks()
    if not table.num_rows:
        names = join_names(list(first.columns), SHOWN_COLUMNS)
        where = {"file": first.path, "columns here": names, **bad_lines.where}
        raise DataError(
            "the inputs hold no rows",
            where=where,
            hint="Check that rows follow the header, or name other files.",
        )
    of_files = f"of {len(chosen)} of {len(files)} files" if len(files) > 1 else "of the file"
    rows_text = f"the first {table.num_rows:,} rows {of_files}"
    coded = frozenset[str]() if first.is_text else _dictionaries_in(first.path)
    return Sample(
        table,
        rows_text,
        first,
        text,
        bad_lines,
        has_all_rows,
        tuple(origins),
        coded,
        later=later,
    )


def _dictionaries_in(path: str) -> frozenset[str]:
    """Return the columns of parquet that were dictionaries when Arrow wrote the file.

    Dictionaries of numbers have lost this type in the file's own schema.
    """
    with readable_parquet(path) as parquet:
        written = (parquet.metadata.metadata or {}).get(b"ARROW:schema")
    if written is None:
        return frozenset()
    schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(written)))
    return frozenset(field.name for field in schema if pa.types.is_dictionary(field.type))


def _joined(files: Sequence[InputFile], tables: Sequence[pa.Table]) -> pa.Table:
    """Return the rows of all tables as one table; `tables` has one for each file.

    Raises `DataError` if a column has types in two files that have no common type.
    """
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except (pa.ArrowTypeError, pa.ArrowInvalid) as error:
        earlier: dict[str, tuple[pa.Field, str]] = {}
        for file, table in zip(files, tables, strict=True):
            for field in table.schema:
                before, path = earlier.setdefault(field.name, (field, file.path))
                if pa.types.is_null(before.type):
                    earlier[field.name] = (field, file.path)
                types = [pa.schema([one]) for one in (before, field)]
                try:
                    pa.unify_schemas(types, promote_options="permissive")
                except (pa.ArrowTypeError, pa.ArrowInvalid):
                    raise DataError(
                        "the column has other types in other files",
                        where={
                            "column": field.name,
                            "file": f"{file.path} ({field.type})",
                            "earlier file": f"{path} ({before.type})",
                        },
                        hint="Write all files with one type, or use files of one table only.",
                    ) from None
        raise DataError(f"the files cannot be read as one table: {error}") from None


def _holds_at_most(file: TableFile, most: int, first: pa.Table) -> bool:
    """Return True if the file certainly has no more rows than were sampled.

    `first` are its first rows, at most `most`.
    """
    if not file.is_text:
        return sum(file.row_groups) <= most
    if first.num_rows >= most:
        return False
    if file.codec is None:
        return file.size_bytes <= _TEXT_BYTES
    return sum(map(len, _pieces(file))) < _TEXT_BYTES


def _is_utf8(file: TableFile) -> bool:
    try:
        for piece in _pieces(file):
            piece.decode()
    except UnicodeDecodeError:
        return False
    return True


def _pieces(file: TableFile) -> list[bytes]:
    stop = min(file.size_bytes, _TEXT_BYTES)
    text = TextRange(file.path, 0, None if file.codec else stop, file.codec)
    pieces, size = [], 0
    for _, piece in read_pieces(text, _TEXT_BYTES):
        pieces.append(piece)
        size += len(piece)
        if size >= _TEXT_BYTES:
            break
    return pieces


def rows_of(file: TableFile, text: FormatSpec, columns: list[str], most: int) -> FirstRows:
    """Return a file's first rows, at most `most`.

    Columns that a text file lacks are left out. Raises `DataError` if the file cannot be read.
    """
    if not file.is_text:
        with readable_parquet(file.path) as parquet:
            # Not whole row groups, which may be much larger than the sample.
            batches = parquet.iter_batches(most, columns=columns)
            table = _first_rows(batches, parquet.schema_arrow, most)
        values = pa.table({name: _flat(table[name]) for name in columns})
        return FirstRows(values, np.arange(table.num_rows), BadLineTally())
    tables, lines, bad_lines, rows = [], [], BadLineTally(), 0
    known = [name for name in columns if name in file.types]
    for found, before in rows_of_pieces(_pieces(file), file, text, known):
        wanted = found.lines[: most - rows]
        is_cut = len(wanted) < len(found.lines)
        bad = [line for line in found.bad if not is_cut or line.line <= wanted[-1]]
        bad_lines = bad_lines.merged(BadLineTally.of(bad).shifted(file.path, before))
        tables.append(found.table)
        lines.append(wanted + before + 1)
        rows += found.table.num_rows
        if rows >= most:
            break
    table = pa.concat_tables(tables, promote_options="permissive").slice(0, most).combine_chunks()
    values = pa.table({name: _flat(table[name]) for name in known})
    return FirstRows(values, np.concatenate(lines), bad_lines)


def _first_rows(batches: Iterable[pa.RecordBatch], schema: pa.Schema, most: int) -> pa.Table:
    """Return the first `most` rows of a file with this schema, or all rows if there are fewer."""
    first: list[pa.RecordBatch] = []
    for batch in batches:
        first.append(batch)
        if sum(one.num_rows for one in first) >= most:
            break
    return pa.Table.from_batches(first).slice(0, most) if first else schema.empty_table()


def _flat(values: pa.ChunkedArray) -> pa.Array:
    try:
        return flat(values)
    except BadValues:  # bytes that are not text
        return concrete(values)


def _yaml(value: object) -> str:
    """Return a value as one line of YAML."""
    return dump_yaml(_plain(value), flow=True)


def _plain(value: Any) -> Any:
    """Return a value with plain types, and integers without a decimal point.

    >>> _plain({"equals": np.float64(5.0), "otherwise": [0.5]})
    {'equals': 5, 'otherwise': [0.5]}
    """
    if isinstance(value, Mapping):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, np.generic):
        value = value.item()
    return int(value) if isinstance(value, float) and value.is_integer() else value


_NO_NAME = r"[/\0]"
_WIDTH = 100
_SHORT_NAME_BYTES = 60
_WHOLE_BYTES = 16 << 30
"""If all files together are larger, a target's values are taken from the sample only."""
_PAIRS_BYTES = 128 << 20
"""Larger tables get no crosses of pairs: with them, `prep` takes minutes of CPU time per million
rows."""
_REVEALS = (
    "alone predicts the target nearly perfectly. If it is known only after the target, leave the "
    "column out: scores of rows without it would be useless"
)
_MANY_BAD = 0.01  # prep stops above this share unless --max-bad is greater


@dataclass(frozen=True)
class Inferred:
    """An inferred features document, with the reasons for its content."""

    text: str  # YAML with comments
    features: FeatureConfig  # the parsed document
    sample: str  # which rows it was inferred from
    left_out: dict[str, str]  # the reason for each column that is not a feature
    target_reason: str  # why the target was guessed
    # why further targets, a weight and windows are suggested, by key of the document
    reasons: dict[str, str]
    bad_lines: BadLineTally  # the sampled lines that are not rows
    bad_lines_text: str = ""  # the description of the bad lines; empty if there are none
    has_many_bad: bool = False  # whether the bad lines exceed the default limit of `prep`
    split_reason: str = ""  # why these rows are for validation
    odd: tuple[OddValues, ...] = ()  # values that are probably mistakes
    revealing: tuple[str, ...] = ()  # features that alone predict the target nearly perfectly
    filled_later: tuple[str, ...] = ()  # warnings about columns without values in the sample

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about values that are probably mistakes, and about columns with the answer."""
        told = (f"{name} {_REVEALS}" for name in self.revealing)
        return (*(odd.warning_text for odd in self.odd), *told, *self.filled_later)


def infer_features(
    files: Sequence[InputFile],
    choices: UserChoices = UserChoices(),  # noqa: B008
    most_rows: int = SAMPLE_ROWS,
    *,
    skip_bad_lines: bool = False,
) -> Inferred:
    """Infer the kind of each column from some rows, and return a features document.

    Args:
        choices: The user's decisions. The targets and the weight that it names are read completely
            from parquet of up to 16 GiB, because the sample may lack classes, or have only equal
            values.
        most_rows: Maximum number of sampled rows.
        skip_bad_lines: Whether `prep` will drop lines of text with odd values, so that nothing is
            inferred from them.

    Raises:
        DataError: A file cannot be read, a column that was asked for is missing or cannot be used,
            or no column is left to learn from.
    """
    sample = replace(_with_decimal_point(sampled(files, most_rows)), time=choices.time)
    held = {name: sample.table[name].combine_chunks() for name in sample.file.columns}
    with_odd, sample = _facts_of_all(held, sample, choices.targets)
    values, columns = held, with_odd
    drops_odd = skip_bad_lines and sample.file.is_text
    if drops_odd:
        odd_rows = [row for facts in columns if facts.has_odd for row in facts.odd]
        kept = np.delete(np.arange(sample.table.num_rows), odd_rows)
        values = {name: one.take(pa.array(kept)) for name, one in held.items()}
        columns = [_facts_of(name, one, sample) for name, one in values.items()]
    weights = [choices.weight] if choices.weight else []
    whole, origins_of_whole = _whole_columns(sample, files, [*choices.targets, *weights])
    known_whole = [
        replace(_facts_of(one.name, whole[one.name], sample), is_of_all_rows=True)
        if one.name in whole
        else one
        for one in columns
    ]
    weight = choices.weight_of(known_whole)
    if choices.targets:
        target, more = choices.targets_of(known_whole, values | whole)
    else:
        target = target_of(columns)
        more = more_targets_of(columns, target)
    taken = {target.column, *(one.column for one in more), *(weight[:1] if weight else ())}
    split, split_reason = choices.split_of(columns, taken)
    test = choices.test_of(columns)
    parts = {one["column"] for one in (split, test) if one and one.get("by") == "column"}
    order = rows_by_time(columns, split)
    suggestions = [
        Suggestion(facts, left_out=SAYS_PART)
        if facts.name in parts
        else Suggestion(facts, left_out=NAMES_PART)
        if part_for_validation(facts) is not None and not choices.ignores_parts
        else suggestion_of(facts, sample.file.has_types_in(facts.name), order)
        for facts in columns
        if facts.name not in taken
    ]
    labels = sampled_labels(values[target.column], target.value, sample.text)
    target_kind = TargetSpec.model_validate(target.value).kind
    suggestions, combined = _with_learnt(
        without_hashed(without_hashed(suggestions, split), test),
        values,
        labels,
        target_kind,
        order,
        may_combine=sum(file.size_bytes for file in files) <= _PAIRS_BYTES,
    )
    if not any(s.features for s in suggestions):
        raise DataError(
            "no column is left to learn from",
            where={"file": sample.file.path, **{s.facts.name: s.left_out for s in suggestions}},
            hint="Write a features document by hand, as docs/any-table.md shows.",
        )
    suggestions += [
        Suggestion(
            Facts(name, "empty", "of unknown type", 1, 1),
            left_out=f"the first file lacks it, and {path} has it",
        )
        for name, path in sample.later.items()
    ]
    revealing = {
        one.facts.name
        for one in suggestions
        if one.features
        and labels is not None
        and reveals_target(one.facts, values[one.facts.name], labels, target_kind, order)
    }
    beside, reasons = _beside(more, weight, windows_of(columns))
    if test is not None:
        beside += ["", "# Rows for a final evaluation only.", f"test: {_yaml(test)}"]
    known = {known_name(name) for name in _more_named(more)}
    decided = (target, split, split_reason)
    text = _document(sample, columns, decided, beside, suggestions, combined, known, revealing)
    left_out = {s.facts.name: s.left_out for s in suggestions if s.left_out}
    features = FeatureConfig.parse(parse_yaml(text, keep_words=True))
    read_as = {s.facts.name: s.features[0].settings["kind"] for s in suggestions if s.features}
    read_as |= dict.fromkeys((weight or ())[:1], "weight")
    kinds = {one.column: TargetSpec.model_validate(one.value).kind for one in (target, *more)}
    odd: list[OddValues] = []
    for facts in known_whole if whole else with_odd:
        origins = origins_of_whole if facts.name in whole else sample.origins
        odd += odd_values_of(
            facts,
            (held | whole)[facts.name],
            kinds.get(facts.name, read_as.get(facts.name, "nothing")),
            origins,
            is_target=facts.name in kinds,
            file_kind=sample.file.kind,
            is_dropped=drops_odd,
        )
    bad = sample.bad_lines
    told, has_many = _lines_left_out(bad, sample.table.num_rows)
    return Inferred(
        text,
        features,
        sample.rows_text,
        left_out,
        target.reason,
        reasons,
        bad,
        told,
        has_many,
        split_reason,
        tuple(odd),
        tuple(one.facts.name for one in suggestions if one.facts.name in revealing),
        tuple(_filled_later(sample, files, columns)),
    )


def _filled_later(
    sample: Sample, files: Sequence[InputFile], columns: Sequence[Facts]
) -> Iterator[str]:
    """Yield a warning for each column that is empty in the sample, but perhaps not after it.

    It names the first row group of parquet that has values, by the statistics of the sampled files.
    """
    empty = [facts.name for facts in columns if facts.kind == "empty"]
    if sample.has_all_rows or not empty:
        return
    told = (
        "{} is left out: no row of the sample has a value, but {}. To use it, add a feature of it "
        "to the features document (distrain prep TABLE --infer --out features.yaml)"
    )
    if sample.file.is_text:
        yield from (told.format(name, "later rows may have some") for name in empty)
        return
    for name in empty:
        for origin in sample.origins:
            group = _first_filled(origin.file, name)
            if group is not None:
                yield told.format(name, f"row group {group} of {origin.file} has some")
                break


def _first_filled(path: str, column: str) -> int | None:
    """Return the first row group of parquet in which a column has values; `None` if unknown."""
    with readable_parquet(path) as parquet:
        for group in range(parquet.num_row_groups):
            of_group = parquet.metadata.row_group(group)
            for chunk in map(of_group.column, range(of_group.num_columns)):
                known = chunk.path_in_schema == column and chunk.statistics
                if known and known.has_null_count and known.null_count < of_group.num_rows:
                    return group
    return None


def _with_decimal_point(sample: Sample) -> Sample:
    if sample.file.delimiter in ("", ","):
        return sample
    texts = [one.combine_chunks() for one in sample.table.columns if is_text(one.type)]
    point = decimal_point_of(texts, sample.file.delimiter)
    return replace(sample, text=sample.text.model_copy(update={"decimal_point": point}))


def _whole_columns(
    sample: Sample, files: Sequence[InputFile], names: Sequence[str]
) -> tuple[dict[str, pa.Array], tuple[Origin, ...]]:
    """Return all values of the columns `names` of parquet files, by name, and the rows' origins.

    An origin says which rows come from which file. Both results are empty for text, and for more
    than 16 GiB of files.
    """
    held = [name for name in names if name in sample.file.types]
    is_large = sum(file.size_bytes for file in files) > _WHOLE_BYTES
    if sample.file.is_text or is_large or not held:
        return {}, ()
    parts = []
    for file in files:
        with readable_parquet(file.path) as parquet:
            parts.append(parquet.read(held))
    table = _joined(files, parts)
    sizes = zip(files, parts, strict=True)
    origins = tuple(Origin(file.path, _ROW, np.arange(part.num_rows)) for file, part in sizes)
    return {name: _flat(table[name]) for name in held}, origins


def _with_learnt(
    suggestions: Sequence[Suggestion],
    values: Mapping[str, pa.Array],
    labels: Labels | None,
    target_kind: str,
    order: Rows | None,
    *,
    may_combine: bool,
) -> tuple[list[Suggestion], list[Feature]]:
    """Return the suggestions with additional features, and the features of pairs of columns.

    Only features of values that predict the target in the sample are added.

    Args:
        labels: The target in the sample, as from `sampled_labels`; `None` if unknown.
        order: The rows in the order of their times, if the latest ones are for validation.
        may_combine: Whether pairs of columns are tested.
    """
    if labels is None:
        return [with_further(one, lambda: False, None) for one in suggestions], []
    of_classes = target_kind == "multiclass"
    tells = predicts_classes if of_classes else is_learnable
    found = [
        with_further(one, partial(tells, values[one.facts.name], labels, order), target_kind)
        for one in suggestions
    ]
    names = [one.facts.name for one in found if may_be_crossed(one, target_kind)]
    if not may_combine or not names:
        return found, []
    strongest = strongest_pairs_of_classes if of_classes else strongest_pairs
    pairs = strongest({name: values[name] for name in names}, labels, order)
    return found, [one for pair in pairs for one in of_pair(pair, of_classes=of_classes)]


def _facts_of_all(
    held: Mapping[str, pa.Array], sample: Sample, targets: Sequence[str]
) -> tuple[list[Facts], Sample]:
    """Return the facts about all columns, and the sample with the null texts that they allow.

    The document lists null texts for all columns. A text that is a value of a target cannot be one,
    because the rows of that class would be left out.
    """
    found = {name: _facts_of(name, one, sample) for name, one in held.items()}
    values = {
        text
        for name in targets
        if name in found and found[name].kind == "text"
        for text in sample.null_texts
        if pc.any(pc.equal(held[name], text)).as_py()
    }
    sample = replace(sample, null_texts=tuple(t for t in sample.null_texts if t not in values))
    pattern = next((facts.pattern for facts in found.values() if facts.pattern), None)
    for name, facts in found.items():
        if values.intersection(facts.null_texts):
            found[name] = _facts_of(name, held[name], sample)
        elif facts.pattern not in (None, pattern):  # the document has one `format.timestamp`
            stored = f"times as text in the form {facts.pattern}, and others in {pattern}"
            found[name] = replace(facts, kind="other", stored=stored, pattern=None)
    return list(found.values()), sample


def _facts_of(name: str, values: pa.Array, sample: Sample) -> Facts:
    is_time = name == sample.time
    facts = facts_of(name, values, sample.text, sample.null_texts, is_time=is_time)
    has_type = facts.kind == "number" and name in sample.dictionaries
    facts = replace(facts, is_of_all_rows=sample.has_all_rows, has_category_type=has_type)
    if sample.file.kind == CRITEO and name in CATEGORICAL:
        return replace(facts, kind="text", stored="hash", numbers=None)
    return facts


def _more_named(more: Sequence[Target]) -> dict[str, Target]:
    """Return further targets by the names of their labels in the output."""
    return {_name_of(one.column, {}, set())[0]: one for one in more}


def _beside(
    more: Sequence[Target],
    weight: tuple[str, str] | None,
    windows: tuple[dict[str, Any], str] | None,
) -> tuple[list[str], dict[str, str]]:
    """Return the document's lines for further targets, weight and windows, and reasons by key.

    The reasons become comments of the document.
    """
    lines, reasons = [], {}
    if more:
        reasons["more_targets"] = "; ".join(f"{one.column}: {one.reason}" for one in more)
        values = {
            name: one.value if isinstance(one.value, dict) else {"column": one.value}
            for name, one in _more_named(more).items()
        }
        told = f"Further targets, for a model of several tasks: {reasons['more_targets']}."
        lines += ["", *_comment(told)]
        lines.append(f"more_targets: {_yaml(values)}")
    if weight is not None:
        reasons["weight"] = weight[1]
        lines += ["", *_comment(f"Weight: {weight[1]}."), f"weight: {_yaml(weight[0])}"]
    if windows is not None:
        reasons["windows"] = windows[1]
        said = (
            f"Windows: {windows[1]}. Uncomment the next line to train them strictly in their order."
        )
        lines += ["", *_comment(said), f"# windows: {_yaml(windows[0])}"]
    return lines, reasons


def _document(
    sample: Sample,
    columns: Sequence[Facts],
    decided: tuple[Target, dict[str, Any] | None, str],
    beside: Sequence[str],
    suggestions: Sequence[Suggestion],
    combined: Sequence[Feature],
    names_taken: Set[str],
    revealing: Set[str],
) -> str:
    """Return the text of the features document.

    Args:
        decided: The target, the section `split` (`None` for none), and the reason for the split.
        beside: The lines from `_beside`.
        combined: The features of several columns.
        names_taken: Names that features may not have.
        revealing: The columns that alone predict the target nearly perfectly.
    """
    target, split, why_split = decided
    bad_lines_text, _ = _lines_left_out(sample.bad_lines, sample.table.num_rows)
    lines = [
        *_comment(
            f"Inferred from {sample.rows_text}: types, missing values and counts are those of this "
            "sample. Check and edit the file."
        ),
        *(_comment(f"{bad_lines_text}.") if bad_lines_text else ()),
        "version: 1",
        "",
        *_comment(f"Target: {target.reason}{'' if target.reason.endswith('?') else '.'}"),
        f"target: {_yaml(target.value)}",
        *beside,
        "",
        *_comment(f"Validation: {why_split}."),
        *([] if split is None else [f"split: {_yaml(split)}"]),
    ]
    layout = _format(sample, columns)
    if layout:
        lines += ["", f"format: {_yaml(layout)}"]
    lines += ["", "columns:"]
    taken = set(names_taken)
    for suggestion in suggestions:
        told = ""
        if suggestion.facts.name in revealing:
            lines += _comment(f"Warning: the column {_REVEALS}.", "  ")
        for place, feature in enumerate(suggestion.features):
            if place == 0:
                lines += _comment(f"{_facts_text(suggestion.facts)}. {feature.reason}.", "  ")
            elif feature.reason != told and suggestion.facts.kind != "time":
                lines += _comment(f"{feature.reason}.", "  ")
            told = feature.reason
            name, settings = _name_of(feature.name, feature.settings, taken)
            lines.append(f"  {_yaml(name)}: {_yaml(settings)}")
        lines += _comments_of(suggestion.doubtful)
    lines += _comment(f"{combined[0].reason}.", "  ") if combined else []
    for feature in combined:
        name, settings = _name_of(feature.name, feature.settings, taken)
        lines.append(f"  {_yaml(name)}: {_yaml(settings)}")
    left_out = [s for s in suggestions if s.left_out]
    if left_out:
        lines += ["", "# Left out:"]
        for s in left_out:
            lines += _comment(f"{s.facts.name}: {s.left_out}. ({_facts_text(s.facts)})", "", "  ")
    lines += ["", "# Next: distrain prep INPUT... --features THIS-FILE --out FOLDER"]
    return "\n".join(lines) + "\n"


def _comments_of(features: Sequence[Feature]) -> list[str]:
    """Return comment lines that become features if their `#` is removed."""
    if not features:
        return []
    lines = [f"{_yaml(re.sub(_NO_NAME, '_', f.name))}: {_yaml(f.settings)}" for f in features]
    return [*_comment(f"Left out: {features[0].reason}.", "  "), *(f"  # {line}" for line in lines)]


def _lines_left_out(bad: BadLineTally, num_rows: int) -> tuple[str, bool]:
    """Return a text about the bad lines ("" for none), and whether `prep` rejects the file.

    `prep` accepts at most 1% bad lines among all lines. `num_rows` is the number of good lines.
    """
    if not bad.count:
        return "", False
    first, share = bad.examples[0], bad.count / (bad.count + num_rows)
    told = (
        f"{bad.count:,} {'line' if bad.count == 1 else 'lines'} left out, the first line "
        f"{first.line} of {os.path.basename(first.file)}: {first.problem}; "
        "pass --bad-lines skip to prep"
    )
    if share <= _MANY_BAD:
        return told, False
    return f"{told}, and --max-bad, for they are {share:.1%} of the lines", True


def _format(sample: Sample, columns: Sequence[Facts]) -> dict[str, Any]:
    """Return the section `format` of the document; empty for the defaults.

    If texts of times have different formats in different columns, that of the first column is used.
    """
    if sample.file.kind == CRITEO:
        return {"kind": CRITEO}
    found: dict[str, Any] = {}
    if sample.file.kind == "csv":
        found["delimiter"] = sample.file.delimiter
    nulls = sorted(
        {text for facts in columns for text in facts.null_texts} | _nulls_later(sample, columns)
    )
    if nulls:
        found["null_values"] = ["", *nulls]
    if sample.text.encoding != "utf-8":
        found["encoding"] = sample.text.encoding
    if sample.text.decimal_point != ".":
        found["decimal_point"] = sample.text.decimal_point
    patterns = [facts.pattern for facts in columns if facts.pattern]  # of typed tables, too
    if patterns:
        found["timestamp"] = patterns[0]
    return found


def _nulls_later(sample: Sample, columns: Sequence[Facts]) -> set[str]:
    """Return texts that mean a missing value if they occur among numbers after the sample.

    These are all that no column of texts has in the sample. The result is empty if the sample has
    all rows, or no column has numbers as texts.
    """
    are_spelt = any(
        facts.kind == "number" and facts.stored == "numbers as text" for facts in columns
    )
    if sample.has_all_rows or not are_spelt:
        return set()
    held = [sample.table[facts.name] for facts in columns if facts.kind == "text"]
    return {
        text
        for text in sample.null_texts
        if not any(pc.any(pc.equal(flat(values), text)).as_py() for values in held)
    }


def _name_of(name: str, settings: dict[str, Any], taken: set[str]) -> tuple[str, dict[str, Any]]:
    """Return a name that the document may give to a feature, and the feature's settings.

    The name is not in `taken`, and is added to it. If it differs from `name`, the settings get the
    key `from`, unless they name their columns already.
    """
    written = re.sub(_NO_NAME, "_", name)
    if mistake_of_name(written):
        written = written.encode()[:_SHORT_NAME_BYTES].decode(errors="ignore")
    while written == LABEL or written in taken:
        written += "_"
    taken.add(written)
    if written != name and not settings.keys() & {"from", "cross"}:
        settings = {"from": name, **settings}
    return written, settings


def _facts_text(facts: Facts) -> str:
    """Return a text for a comment: a column's type, missing values and number of values."""
    share = facts.missing / facts.num_rows
    missing = "none missing" if not facts.missing else f"{share:.1%} missing"
    what = "different items" if facts.kind == "list" else "different values"
    return f"{facts.stored}, {missing}, {facts.distinct:,} {what}"


def _comment(text: str, indent: str = "", inner: str = "") -> list[str]:
    text = "".join(c if c.isprintable() else "?" for c in text)
    begin = f"{indent}#{inner} "
    more = f"{begin}  " if inner else begin
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=begin,
        subsequent_indent=more,
        break_long_words=False,
        break_on_hyphens=False,
    )
