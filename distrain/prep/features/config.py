"""Features documents: read, checked, and converted to a workflow."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from distrain.errors import SpecError
from distrain.jobs.spec.explain import explain_all
from distrain.jobs.spec.load import dump_yaml, parse_document, plain, read_document
from distrain.prep.column_group import ColumnGroup
from distrain.prep.features.columns import (
    ColumnSpec,
    ContinuousSpec,
    UnchangedHistorySpec,
    UnchangedSpec,
)
from distrain.prep.features.document import (
    CRITEO,
    FeatureDocument,
    FormatSpec,
    mistakes_between_keys,
)
from distrain.prep.features.partitions import types_of_partitions
from distrain.prep.features.targets import TableWindows, TargetSpec
from distrain.prep.operators.encodings import TargetEncode
from distrain.prep.operators.operator import Operator, takes_of
from distrain.prep.parts import kept_names
from distrain.prep.raw_lines import TextLayout
from distrain.prep.workflow import Workflow
from distrain.schema.column import ColumnSchema
from distrain.schema.criteo import LABEL
from distrain.storage.inputs import read_bytes
from distrain.storage.outputs import atomic_file
from distrain.storage.urls import is_remote

FEATURES_FILE = "features.yaml"
_WRITES_ONE = "`distrain prep --infer INPUT --out features.yaml` writes one."
_WHAT = "features document"


@dataclass(frozen=True)
class FeatureConfig:
    """The description of a table's columns: a features document that was checked.

    >>> config = FeatureConfig.parse(
    ...     {"target": "bought", "columns": {"shop": {"kind": "categorical"}}}
    ... )
    >>> config.document.target.column, config.workflow().columns
    ('bought', ('shop',))
    """

    document: FeatureDocument
    unlabeled: bool = False  # whether the table has no target
    keep: tuple[str, ...] = ()  # columns that rows keep unchanged, besides the features
    # whether a saved workflow prepares the rows: a missing number of a normalised column is then
    # allowed, since it becomes the mean of the training rows
    is_fitted: bool = False

    @classmethod
    def built_in(
        cls, workflow: Workflow, layout: TextLayout, unlabeled: bool, keep: tuple[str, ...]
    ) -> FeatureConfig:
        """Return the configuration for a table without a features document.

        The table is Criteo's text, or parquet with the columns that `workflow` names. Columns are
        read without conversion; only the workflow changes them. `layout` is the format of Criteo's
        text. `unlabeled` says that rows have no labels, and `keep` names columns to write
        unchanged.
        """
        columns: dict[str, Any] = {
            name: UnchangedSpec(holds=takes_of(group.operators))
            for group in workflow.groups
            for name in group.columns
        }
        # `model_construct` does not validate: a workflow may use names that a document may not.
        text = FormatSpec.model_construct(
            kind=CRITEO, delimiter=layout.delimiter, header=layout.header, null_values=()
        )
        listed = workflow.history
        history = None if listed is None else UnchangedHistorySpec.model_construct(**asdict(listed))
        document = FeatureDocument.model_construct(
            target=TargetSpec(column=LABEL), format=text, columns=columns, history=history
        )
        return cls(document, unlabeled, keep)

    @property
    def is_built_in(self) -> bool:
        """Whether this is the configuration for a workflow without a features document."""
        columns = self.document.columns.values()
        return any(isinstance(column, UnchangedSpec) for column in columns)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The table's columns to read, each once, including kept columns."""
        joined = {name for join in self.document.joins for name in join.columns}
        kept = (name for name in self.keep if name not in joined)
        return tuple(dict.fromkeys((*self.document.inputs, *kept)))

    @property
    def staged(self) -> dict[str, ColumnSpec]:
        """The columns of staging files, by name, with the settings for reading their values."""
        staged = self.document.staged
        if not self.is_fitted:
            return staged
        return {n: c.with_gaps if isinstance(c, ContinuousSpec) else c for n, c in staged.items()}

    @property
    def beside(self) -> tuple[ColumnSchema, ...]:
        """As `FeatureDocument.beside`; empty for rows without targets."""
        return () if self.unlabeled else self.document.beside

    @property
    def windows(self) -> TableWindows | None:
        """The windows of the rows; `None` if there are none, and for rows without targets."""
        return None if self.unlabeled else self.document.windows

    @property
    def is_traced(self) -> bool:
        """Whether prepared rows also get their origin, the columns `file` and `row_number`."""
        return self.unlabeled or bool(self.keep)

    @property
    def kept(self) -> dict[str, str]:
        """The columns that rows keep unchanged, by their names in the output.

        Raises an `InputError` if two columns of the output would have the same name.
        """
        beside = (column.name for column in self.beside)
        return kept_names(self.keep, [*self.document.columns, *beside])

    @classmethod
    def load(cls, path: str | Path) -> FeatureConfig:
        """Read a YAML file, or a JSON file if its name ends in `.json`, from a path or URL.

        Raises:
            SpecError: The file is missing or not YAML, or has mistakes; the error lists all.
            DataError: The URL cannot be read; `Unavailable` if its storage does not answer.
        """
        if is_remote(path):
            text = read_bytes(path).decode(errors="replace")
            document = parse_document(text, str(path), _WHAT, _WRITES_ONE, keep_words=True)
            return cls.parse(document, source=str(path), folder=str(path).rpartition("/")[0])
        document = read_document(Path(path), _WHAT, _WRITES_ONE, keep_words=True)
        return cls.parse(document, source=str(path), folder=Path(path).parent)

    @classmethod
    def parse(
        cls, document: object, *, source: str | None = None, folder: str | Path = ""
    ) -> FeatureConfig:
        """Check a features document, and return it as a configuration.

        Args:
            source: The file that the document was read from, for errors.
            folder: The path or URL at which relative paths of side tables start; by default the
                working directory.

        Raises:
            SpecError: The document has mistakes; the error lists all, each with its path.
        """
        from pydantic import ValidationError

        where = {"file": source} if source else {}
        if not isinstance(document, Mapping):
            raise SpecError(
                "a features document is a mapping of sections",
                where=where,
                hint="At least `target: COLUMN` and `columns: {NAME: {kind: categorical}}`.",
            )
        try:
            content = plain(document)
            return cls(_with_absolute_joins(FeatureDocument.model_validate(content), folder))
        except RecursionError:
            raise SpecError("the features document is nested too deeply", where=where) from None
        except ValidationError as error:
            reported = "\n".join(explain_all(error.errors(), FeatureDocument)).split("\n")
        # pydantic runs checks across keys only if each key is valid.
        reported += [
            mistake for mistake in mistakes_between_keys(content) if mistake not in reported
        ]
        raise SpecError("\n".join(reported), where=where)

    @property
    def text(self) -> str:
        """The document as YAML."""
        document = self.document.model_dump(mode="json", exclude_defaults=True)
        return dump_yaml({"version": 1, **document})

    def save(self, path: str | Path) -> None:
        with atomic_file(path) as partial_file:
            partial_file.write_text(self.text)

    def with_partition_types(self, paths: Sequence[str]) -> FeatureConfig:
        """Return the configuration with the type of each folder key whose values are texts.

        So later rows have texts, too, even if all keys of their own folders are integers.
        """
        found = types_of_partitions(paths, self.document.partitions)
        texts = {name: kind for name, kind in found.items() if kind == "text"}
        used = {name: kind for name, kind in texts.items() if name in self.inputs}
        partitions = {**used, **self.document.partitions}
        return replace(self, document=self.document.model_copy(update={"partitions": partitions}))

    def without_split(self) -> FeatureConfig:
        """Return the configuration without a split of the rows, and without test rows."""
        return replace(
            self, document=self.document.model_copy(update={"split": None, "test": None})
        )

    @staticmethod
    def json_schema() -> dict[str, Any]:
        return {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            **FeatureDocument.model_json_schema(),
        }

    def workflow(self) -> Workflow:
        """Return the workflow to fit: columns grouped by equal operators, in document order.

        If rows are split by time, target means are learnt in time order.
        """
        groups: dict[str, list[str]] = {}
        operators: dict[str, tuple[Operator, ...]]
        by_time = self.document.times_of_split is not None
        operators = {
            name: tuple(
                replace(one, by_time=by_time) if isinstance(one, TargetEncode) else one
                for one in column.operators
            )
            for name, column in self.document.columns.items()
        }
        for name, steps in operators.items():
            groups.setdefault(repr(steps), []).append(name)  # `repr` includes all settings
        history = self.document.history
        return Workflow(
            tuple(ColumnGroup(tuple(n), operators[n[0]]) for n in groups.values()),
            history=None if history is None else history.operator,
        )


def _with_absolute_joins(document: FeatureDocument, folder: str | Path) -> FeatureDocument:
    """Return the document with absolute paths of side tables.

    Workers and later runs have other working directories.
    """
    joins = tuple(
        join.model_copy(update={"file": _absolute(join.file, folder)}) for join in document.joins
    )
    return document.model_copy(update={"joins": joins}) if joins else document


def _absolute(file: str, folder: str | Path) -> str:
    if is_remote(file):
        return file
    if not is_remote(folder) or os.path.isabs(file):
        return os.path.normpath(Path(folder).absolute() / file)
    scheme, _, place = str(folder).partition("://")
    return f"{scheme}://{os.path.normpath(f'{place}/{file}')}"
