"""Prepares training files from raw files.

    OUT/train/part-00000.parquet ..   label, I1..I13 (float32), C1..C26 (int32 ids)
    OUT/valid/part-00000.parquet ..   validation rows, prepared with the training rows' statistics
    OUT/test/part-00000.parquet ..    test rows, if any, prepared like validation rows
    OUT/schema.pbtxt, schema.json     the meaning of the columns
    OUT/workflow/                     the fitted workflow, to prepare more data in the same way
    OUT/prep.json                     counts of rows and lines that were read, dropped and written

The columns above are Criteo's. The phases are `read` (converts text to typed staging files, and
reads the footers of parquet), `fit`, `history` (only if rows get lists of earlier events) and
`write`. All files, by default also staging files, are in a folder with a temporary name, which is
renamed at the end. On an object store, they have a temporary prefix, and are copied to their final
names at the end.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from distrain.errors import DataError, InputError
from distrain.jobs.spec.paths import absolute
from distrain.prep.column_group import INTEGERS, LISTS_OF, NUMBERS, TEXTS
from distrain.prep.counting.vocabularies import VocabularyReport
from distrain.prep.features.config import FEATURES_FILE, FeatureConfig
from distrain.prep.features.document import FeatureDocument, RandomSplit
from distrain.prep.fitting import fit_as_asked
from distrain.prep.histories.making import check_log, make_histories
from distrain.prep.lookups.index import forget_run, make_lookups
from distrain.prep.memory import MemoryPlan, plan_memory
from distrain.prep.operators.value_table import SavedTable
from distrain.prep.parts import Part, drawn_parts, split_parts
from distrain.prep.progress import PhaseCounter, ProgressCallback
from distrain.prep.reading import (
    ReadInputs,
    read_inputs,
    refuse_files,
    with_features,
    workflow_of,
)
from distrain.prep.report_file import PREP_JSON
from distrain.prep.request import PrepRequest, PrepResult, SplitReport, output_schema
from distrain.prep.result_warnings import warnings_of
from distrain.prep.saved_vocabulary import SavedVocabulary
from distrain.prep.transforming import split_report, transform_part
from distrain.prep.updates.raw_files import with_raw_files
from distrain.prep.vocabulary import CATEGORIES
from distrain.prep.workers import TaskRunner, check_shared
from distrain.prep.workflow import FORM, HOLDS, RAW_FILES, Workflow, criteo_workflow
from distrain.schema.column import Tags
from distrain.schema.criteo import LABEL
from distrain.storage.folder import open_folder
from distrain.storage.inputs import InputFile, list_inputs
from distrain.storage.outputs import (
    atomic_file,
    atomic_output,
    check_inputs_outside,
    check_writable,
    scratch_folder,
)
from distrain.storage.prefixes import refuse_unfinished
from distrain.storage.retrying import RETRY_S, with_retries

if TYPE_CHECKING:
    from distributed import Client


def prepare(
    request: PrepRequest,
    client: Client,
    on_progress: ProgressCallback | None = None,
) -> PrepResult:
    """Prepare training files on a Dask cluster.

    Args:
        client: The cluster's client; its workers must see `request.out` and `request.staging`.
        on_progress: Called with the progress of each phase.

    Raises:
        InputError: The request, the features document or the saved workflow cannot be used.
        DataError: An input, a column or a line cannot be used.
        OutputError: The output exists and may not be replaced (an output at a URL never is),
            cannot be written, or workers do not see it. An existing output is unchanged; otherwise
            nothing is left under its name.
        Unavailable: The object store of the output does not answer.
        ClusterError: Workers died.
    """
    request = with_features(request)
    files = list_inputs(request.inputs, retry_s=RETRY_S)
    valid_files = list_inputs(request.valid, retry_s=RETRY_S) if request.valid else []
    test_files = list_inputs(request.test, retry_s=RETRY_S) if request.test else []
    refuse_files(files, valid_files)
    refuse_files([*files, *valid_files], test_files)
    log_files = list_inputs(request.log, retry_s=RETRY_S) if request.log else []
    joins = request.features.document.joins if request.features is not None else ()
    read = [file.path for file in (*files, *valid_files, *test_files, *log_files)]
    check_inputs_outside(request.out, [*read, *(join.file for join in joins)])
    refuse_files(log_files, [*files, *valid_files])
    workflow = _workflow(request)
    features = request.features or FeatureConfig.built_in(
        workflow, request.layout, request.unlabeled, request.keep
    )
    features = features.with_partition_types(read)
    memory = plan_memory(client, request.memory_bytes, request.block_bytes, workflow.has_tables)
    check_log(workflow.history, request.log, is_fitted=request.saved_workflow is not None)
    out = request.out
    if isinstance(out, Path):
        out = out.absolute()  # workers may have another working directory
        if request.overwrite or not out.exists():
            check_writable(out.parent)
    with (
        atomic_output(out, replace=request.overwrite) as folder,
        _staging(request, folder) as staging,
    ):
        check_shared([folder, staging], client)
        runner, report = TaskRunner(client), on_progress or (lambda _: None)
        run = _Run(request, features, workflow, folder, staging, runner, memory, report)
        try:
            result = run.do(files, valid_files, test_files, log_files)
        finally:
            # Workers may have mapped files of the staging folder. If the cluster is gone, an
            # earlier error is already being raised, and dead workers hold no files.
            with suppress(Exception):
                client.run(forget_run, on_error="ignore")
    return result


@contextmanager
def _staging(request: PrepRequest, folder: str) -> Iterator[str]:
    if request.staging is not None:
        with scratch_folder(request.staging) as place:
            yield place
        return
    made = open_folder(folder).sub(_STAGING)
    made.make()
    yield made.url
    with_retries(made.remove, {"folder": made.url}, RETRY_S)


def _workflow(request: PrepRequest) -> Workflow:
    if request.saved_workflow:
        refuse_unfinished(str(request.saved_workflow), RETRY_S)
    saved = None
    if request.saved_workflow:  # not read whole: vocabularies and tables may exceed the memory
        categories = f"{request.saved_workflow}/{CATEGORIES}"
        look_at_table = partial(SavedTable.look_at, categories)
        look_at = partial(SavedVocabulary.look_at, categories)
        saved = Workflow.load(request.saved_workflow, look_at, look_at_table)
    if request.features is not None:
        target = request.features.document.target
        if target.placeholder and saved is None:
            raise InputError(
                f"the target {target.column!r} is a placeholder: --infer found no column that can "
                "be predicted unchanged",
                where={"key": "target", "column": target.column},
                hint="Set the target in the features document, and remove placeholder. "
                "For a number use kind: regression.",
            )
        return workflow_of(request.features, saved)
    return saved or request.workflow or criteo_workflow()


_STAGING = ".staging"


@dataclass
class _Run:
    _request: PrepRequest
    _features: FeatureConfig
    _workflow: Workflow
    _folder: str
    _staging: str
    _runner: TaskRunner
    _memory: MemoryPlan
    _on_progress: ProgressCallback
    _seconds: dict[str, float] = field(default_factory=dict)
    _list_lengths: dict[str, tuple[int, int]] = field(default_factory=dict)
    _category_types: dict[str, str] = field(default_factory=dict)
    _form: str = ""

    def do(
        self,
        files: Sequence[InputFile],
        valid_files: Sequence[InputFile],
        test_files: Sequence[InputFile],
        log_files: Sequence[InputFile],
    ) -> PrepResult:
        started = time.perf_counter()
        kept = self._features.kept  # raises before any row is read
        with self._timed("read"):
            read = self._read([*log_files, *files, *valid_files, *test_files])
        read, before = read.without({file.path for file in log_files})
        read, test_parts = read.without({file.path for file in test_files})
        train_parts, valid_parts, selected = self._split(read, {f.path for f in valid_files})
        test_parts += selected
        known = self._workflow.record.get(RAW_FILES, {}).get("train", {})
        again = [file.path for file in files if absolute(file.path) in known]
        with self._timed("fit"):
            reports = self._fit(train_parts)
        cardinalities = {name: report.cardinality for name, report in reports.items()}
        sizes = {report.name: report.cardinality for report in reports.values()}
        with self._timed("write"):
            train, valid, test = self._write(sizes, before, train_parts, valid_parts, test_parts)
        self._refuse_no_ones(train)
        self._save_record(files, valid_files)
        self._save_schema(cardinalities)
        self._seconds["total"] = round(time.perf_counter() - started, 3)
        result = PrepResult(
            self._request.out,
            train,
            valid,
            read.bad_lines,
            cardinalities,
            tuple(file.path for file in files),
            tuple(file.path for file in valid_files),
            self._seconds,
            {c: report.new_ids for c, report in reports.items()} if self._request.update else None,
            tuple(again) if self._request.update else (),
            read.unlabelled,
            kept,
            test=test,
        )
        warnings = warnings_of(result, is_fitted_anew=self._request.saved_workflow is None)
        result = replace(result, warnings=tuple(warnings))
        with atomic_file(f"{self._folder}/{PREP_JSON}", sync=False) as partial_file:
            partial_file.write_text(json.dumps(result.to_json(), indent=1) + "\n")
        return result

    @contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self._seconds[phase] = round(time.perf_counter() - started, 3)

    def _read(self, files: Sequence[InputFile]) -> ReadInputs:
        request = self._request
        settings = (self._runner, self._staging, self._on_progress, self._workflow)
        read = read_inputs(files, self._features, request, *settings)
        if not read.parts:
            raise _no_rows(files, read)
        read.bad_lines.check_share(read.num_good, request.max_bad)
        self._workflow.check_category_types(read.category_types)
        self._category_types, self._form = read.category_types, read.form
        return read

    def _split(
        self, read: ReadInputs, valid_paths: set[str]
    ) -> tuple[list[Part], list[Part], list[Part]]:
        """Return the parts for training, validation and testing."""
        request, document = self._request, self._features.document
        read, valid = read.without(valid_paths)
        last = FeatureDocument.last_of(document.test)
        train, test = _last_parts(read.parts, last.get("valid_rows"), last.get("valid_fraction"))
        test += read.test_parts
        rows = sum(part.num_rows for part in train)
        if isinstance(document.split, RandomSplit):
            train, valid = drawn_parts(train, document.split.share)
        elif not valid_paths:
            train, valid = _last_parts(train, request.valid_rows, request.valid_fraction)
        valid += read.valid_parts
        if document.test is not None and not test:
            raise DataError(
                f"no test rows are left of {rows:,}",
                where={"test": document.test.by},
                hint="Correct `test` of the features document.",
            )
        if not train:
            raise DataError(
                f"no training rows are left of {rows:,}",
                where={"--valid-rows": f"{request.valid_rows:,}"} if request.valid_rows else {},
                hint="Use fewer validation rows, or check the lines that --bad-lines skip dropped.",
            )
        return train, valid, test

    def _fit(self, parts: Sequence[Part]) -> dict[str, VocabularyReport]:
        if self._request.features is not None:  # saved for later rows, which are not split
            features = self._features.without_split()
            features.save(f"{self._folder}/workflow/{FEATURES_FILE}")
        self._workflow, reports = fit_as_asked(
            self._request,
            self._workflow,
            parts,
            self._runner,
            (f"{self._folder}/workflow", self._staging),
            self._on_progress,
            self._memory,
        )
        return reports

    def _write(
        self,
        sizes: Mapping[str, int],
        before: Sequence[Part],
        train: Sequence[Part],
        valid: Sequence[Part],
        test: Sequence[Part],
    ) -> tuple[SplitReport, SplitReport | None, SplitReport | None]:
        workflow = f"{self._folder}/workflow"
        categories = f"{workflow}/{CATEGORIES}"
        lookups = make_lookups(categories, sizes, self._runner, self._staging, self._memory)
        request = self._request
        settings = (request.row_group_rows, self._features)
        histories = make_histories(
            self._workflow.history,
            (before, train, [*valid, *test]),
            (workflow, lookups),
            (self._runner, self._memory, self._staging),
            request.block_bytes,
            self._on_progress,
        )
        tasks = []
        is_fit = request.saved_workflow is None
        for split, parts in (("train", train), ("valid", valid), ("test", test)):
            if parts:
                open_folder(f"{self._folder}/{split}").make()
            for number, part in enumerate(parts):
                output = f"{self._folder}/{split}/part-{number:05d}.parquet"
                training = is_fit and split == "train"
                tasks.append(
                    (part, workflow, lookups, output, *settings, next(histories), training)
                )
        counter = PhaseCounter("write", len(tasks), self._on_progress)
        written = self._runner.run(
            "write", transform_part, tasks, lambda _, part: counter.add(part.num_rows)
        )
        for column in written[0].list_lengths:
            lengths = [part.list_lengths[column] for part in written]
            least, greatest = min(low for low, _ in lengths), max(high for _, high in lengths)
            self._list_lengths[column] = (least, greatest)
        end = len(train) + len(valid)
        valid_report = split_report(written[len(train) : end]) if valid else None
        test_report = split_report(written[end:]) if test else None
        return split_report(written[: len(train)]), valid_report, test_report

    def _refuse_no_ones(self, train: SplitReport) -> None:
        if self._request.saved_workflow is None and train.num_ones == 0:
            raise DataError(
                f"all {train.num_rows:,} training rows have the label 0",
                hint="A model cannot learn from these: check the target and the split.",
            )

    def _save_record(self, files: Sequence[InputFile], valid_files: Sequence[InputFile]) -> None:
        """Save facts about the rows on which the workflow was fitted or updated, if it was."""
        if self._request.saved_workflow is not None and not self._request.update:
            return
        self._workflow = with_raw_files(self._workflow, train=files, valid=valid_files)
        if self._request.saved_workflow is None:
            facts = {HOLDS: self._holds(), FORM: self._form}
            self._workflow = self._workflow.with_record(**facts)
        self._workflow.save_document(f"{self._folder}/workflow")

    def _holds(self) -> dict[str, str]:
        items = dict.fromkeys(self._workflow.columns, NUMBERS)
        items |= dict.fromkeys(self._workflow.taking_categories, "null")
        items |= {c: INTEGERS if t == "int64" else TEXTS for c, t in self._category_types.items()}
        return {c: (LISTS_OF if c in self._list_lengths else "") + k for c, k in items.items()}

    def _save_schema(self, cardinalities: dict[str, int]) -> None:
        document = self._features.document
        tags = {c: spec.tags for c, spec in document.columns.items()}
        width = self._request.embedding_dim
        schema = output_schema(self._workflow, cardinalities, width, self._list_lengths, tags)
        if self._request.unlabeled:
            schema = schema.remove_by_tag(Tags.TARGET)
        else:
            schema = schema.with_columns(document.target.schema_of(LABEL), *document.beside)
        for name in ("schema.pbtxt", "schema.json"):
            schema.save(f"{self._folder}/{name}")


def _last_parts(
    parts: Sequence[Part], num_last: int | None, share: float | None
) -> tuple[list[Part], list[Part]]:
    """Return the parts of the first rows, and of the last ones: a number, a `share`, or none."""
    rows = sum(part.num_rows for part in parts)
    last = num_last or 0 if share is None else max(1, round(rows * share))
    return split_parts(parts, rows - last)


def _no_rows(files: Sequence[InputFile], read: ReadInputs) -> DataError:
    where: dict[str, object] = {"files": ", ".join(file.path for file in files[:3])}
    where |= read.bad_lines.where
    if read.unlabelled:
        where["rows without a label"] = read.unlabelled
    return DataError("the inputs hold no usable rows", where=where, hint="Check the files.")
