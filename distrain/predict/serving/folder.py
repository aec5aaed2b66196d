"""Exports a model with its workflow: a folder that scores raw rows, checked against `predict`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from distrain.errors import DataError, DistrainError
from distrain.models.export import INPUTS_FILE, Form, model_file, write_export
from distrain.models.heads.targets import output_names
from distrain.models.quantised import TableForm, round_tables
from distrain.models.saved_model import SavedModel
from distrain.predict.evaluation import evaluate_saved
from distrain.predict.in_memory import scores_of_prepared
from distrain.predict.load_model import open_model
from distrain.predict.logits import ScorerInProcess
from distrain.predict.raw_rows import rows_for_model, workflow_for
from distrain.predict.score_columns import score_names
from distrain.predict.serving import deltas, preprocess, rows, score
from distrain.predict.serving.make_delta import DeltaSize, previous_export, write_delta
from distrain.predict.serving.program import Program, program_of, write_vocabulary
from distrain.predict.serving.raw_graph import RAW_GRAPH, RawInput, raw_inputs, write_raw_graph
from distrain.prep import raw_values, steps
from distrain.prep.lists import holds_lists
from distrain.prep.reading import first_rows
from distrain.prep.transforming import RawTables
from distrain.prep.workflow import FORM, Workflow
from distrain.storage.outputs import check_free, scratch_folder
from distrain.version import __version__

SAMPLE_ROWS = 200
TOLERANCE = 1e-6
MEASURED = ("auc", "log_loss", "normalised_entropy", "calibration")
_MODULES = (score, preprocess, rows, raw_values, steps, deltas)
_ABSOLUTE = re.compile(r"^from distrain\.(predict\.serving|prep)\.", re.M)
"""Matches imports between the exported modules, which are side by side in the exported folder."""
_MISTAKE = (
    "This is a bug in distrain: please report it. Without --with-workflow the model is "
    "exported for ids."
)


@dataclass(frozen=True)
class ServedExport:
    """The result of comparing the scores of an export with those of `predict`."""

    rows: int  # the number of golden rows, which are stored in the folder with their scores
    largest_difference: float  # between the scores of the folder and of `predict`
    no_graph: Mapping[str, str]  # the reasons why there is no graph of raw columns, by column


@dataclass(frozen=True)
class Written:
    """The result of `export_folder`."""

    served: ServedExport | None  # the comparison with `predict`; `None` if only ids are scored
    delta: DeltaSize | None  # the changes; `None` for a complete export
    # metrics of the exported tables, and under `fp32` those of the trained tables
    validation: Mapping[str, Any] | None


def export_folder(
    path: str | Path,
    model_dir: str | Path,
    saved: SavedModel,
    to: Form,
    *,
    tables: TableForm = "fp32",
    with_workflow: bool = False,
    sample: str | None = None,
    valid: Sequence[str] = (),
    since: Path | None = None,
    beside: Callable[[Path], None] | None = None,
    replace: bool = False,
) -> Written:
    """Write a model to a folder that scores without distrain.

    Args:
        model_dir: The folder of `saved`.
        with_workflow: Whether to add the workflow of the model's data, so that the export scores
            raw rows.
        sample: A file of raw rows; `None` for the first file that the workflow was fitted on. Its
            first rows are scored by the export and by `predict`, and the scores are compared. Only
            used with `with_workflow`.
        valid: Files of labelled rows, prepared or raw. The model's metrics on these rows are added
            to the manifest.
        since: The folder of the previous export, complete or a delta. If given, only the changes
            since that export are written.
        tables: As in `write_export`.
        beside: As in `write_export`.
        replace: As in `write_export`.

    Raises:
        InputError: The workflow makes a column that cannot be made from one raw row; or the
            previous export has another form, or depends on the folder `path`.
        DataError: Sample, validation rows, workflow or previous export cannot be read; or the
            export's scores differ from those of `predict`, or it rejects a row of the sample that
            `predict` scores. Nothing is written then.
        ModelError, OutputError: As in `write_export`.
    """
    facts: dict[str, Any] = {"model": model_file(to)}
    rounded = saved
    if valid or with_workflow:
        rounded = open_model(model_dir)
        rounded.model.eval()
        round_tables(rounded.model, tables)
    workflow = _ServedWorkflow(model_dir, rounded, sample) if with_workflow else None
    if valid:
        facts["validation"] = _measured(model_dir, saved, rounded, valid)
    served: list[ServedExport] = []

    def finish(folder: Path) -> None:
        if beside is not None:
            beside(folder)
        if workflow is None:
            write_manifest(folder, facts)
        else:
            served.append(workflow.add_to(folder, facts))

    def write(place: str | Path, replace: bool = False) -> None:
        write_export(place, saved, to, tables=tables, beside=finish, replace=replace)

    delta = None
    if since is None:
        write(path, replace)
    else:
        check_free(path, replace)
        parent = Path(path).absolute().parent
        with previous_export(since) as before, scratch_folder(parent) as scratch:
            after = Path(scratch) / "whole"
            write(after)
            delta = write_delta(path, since, before, after, replace=replace)
    return Written(next(iter(served), None), delta, facts.get("validation"))


def _measured(
    model_dir: str | Path, saved: SavedModel, rounded: SavedModel, valid: Sequence[str]
) -> dict[str, Any]:
    with rows_for_model(model_dir, saved, valid) as (dataset, *_):
        reports = [evaluate_saved(ScorerInProcess(one, dataset)) for one in (rounded, saved)]
    own, fp32 = ({name: getattr(one, name) for name in MEASURED} for one in reports)
    targets = {"targets": reports[0].targets} if reports[0].targets else {}
    return {"rows": reports[0].rows, **own, **targets, "fp32": fp32}


class _ServedWorkflow:
    """Adds the workflow of a model's data to the folder of an exported model, as `program.json`.

    That file lists the steps that `preprocess.py` in the folder applies to raw rows.
    """

    def __init__(self, model_dir: str | Path, saved: SavedModel, sample: str | None):
        self._saved, folder = saved, workflow_for(model_dir, saved)
        workflow, self._tables = Workflow.load(folder), RawTables(folder, labeled=False)
        features = self._tables.features
        self._first = first_rows(sample, workflow, features, SAMPLE_ROWS)
        self._program = program_of(workflow, features, saved, self._first.form)
        self._tables.workflow = self._tables.workflow.with_record(**{FORM: self._first.form})

    def add_to(self, folder: Path, facts: Mapping[str, Any]) -> ServedExport:
        _write_program(folder, self._program)
        manifest = _manifest(folder, self._saved, facts)
        if manifest["model"].endswith(".onnx"):
            manifest |= self._write_graph(folder, manifest)
        write_manifest(folder, manifest)
        golden, checked = self._checked(folder)
        text = json.dumps(golden, ensure_ascii=False, separators=(",", ":"))
        (folder / score.GOLDEN).write_text(text + "\n", encoding="utf-8")
        write_manifest(folder, manifest | {"largest_difference": checked.largest_difference})
        return checked

    def _write_graph(self, folder: Path, manifest: Mapping[str, Any]) -> dict[str, Any]:
        """Write `raw.onnx` if ONNX supports all columns; return the manifest's entries about it."""
        inputs, unserved = raw_inputs(self._program, manifest["targets"])
        if unserved:
            return {"no_raw_graph": unserved}
        write_raw_graph(folder, manifest["model"], self._program, inputs, manifest["targets"])
        return {"raw_graph": {"file": RAW_GRAPH, "inputs": [asdict(one) for one in inputs]}}

    def _checked(self, folder: Path) -> tuple[dict[str, Any], ServedExport]:
        """Compare the folder's scores with those of `predict`, also the scores of `raw.onnx`.

        The rows are those of the sample; rows that the folder rejects are not scored.

        Returns the content of `golden.json`, and the comparison. Raises `DataError` if scores
        differ by more than the tolerance, no row can be scored, or `predict` scores a row that the
        folder rejects.
        """
        scorer = score.Scorer(folder)
        form, table = self._first.form, self._first.table
        given = {name: values_of(table[name]) for name in table.column_names}
        usable = []
        for place in range(table.num_rows):
            try:
                scorer.preprocessor.inputs({n: [of[place]] for n, of in given.items()}, form)
                usable.append(place)
            except preprocess.BadValue as bad:
                self._check_refused(table.slice(place, 1), bad)
        if not usable:
            raise DataError(
                "no row of the sample can be scored",
                hint="Give --sample raw rows as `distrain predict` takes them.",
            )
        kept = {name: [values[place] for place in usable] for name, values in given.items()}
        wanted = self._predicted(table.take(pa.array(usable)))
        every = [scorer.score(kept, form)]
        if "raw_graph" in scorer.manifest:
            every.append(_scores_of_graph(scorer, kept, form))
        difference = max(score.largest_difference(found, wanted) for found in every)
        for found in every:
            if not score.largest_difference(found, wanted) <= TOLERANCE:
                raise _differs(kept, found, wanted)
        golden = {"form": form, "rows": score.encoded(kept), "scores": wanted}
        no_graph = scorer.manifest.get("no_raw_graph", {})
        return golden, ServedExport(len(usable), difference, no_graph)

    def _check_refused(self, table: pa.Table, bad: Exception) -> None:
        """Raise a `DataError` if `predict` scores a row that the exported scorer has rejected.

        `table` is the row; `bad` is the scorer's error.
        """
        try:
            self._predicted(table)
        except DistrainError:
            return
        raise DataError(
            f"the export rejects a row of the sample that predict scores: {bad}; nothing was "
            "written",
            hint=_MISTAKE,
        )

    def _predicted(self, table: pa.Table) -> dict[str, list[Any]]:
        made = self._tables.of_rows(table, "the sample")
        found = pa.table(scores_of_prepared(self._saved, torch.device("cpu"), made, {}))
        return {name: found[name].to_pylist() for name in found.column_names}


def _scores_of_graph(scorer: score.Scorer, rows: dict[str, list[Any]], form: str) -> dict[str, Any]:
    import onnxruntime  # type: ignore[import-untyped, unused-ignore]

    graph = scorer.manifest["raw_graph"]
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # ignore warnings about optional inputs
    session = onnxruntime.InferenceSession(str(scorer.folder / graph["file"]), options)
    read = scorer.preprocessor.read(rows, form)
    given: dict[str, Any] = {}
    for one in graph["inputs"]:
        given |= RawInput(**one).fed(*read[one["column"]])
    names = [one.name for one in session.get_outputs()]
    return dict(zip(names, session.run(names, given), strict=True))


def _write_program(folder: Path, program: Program) -> None:
    vocabularies = folder / deltas.VOCABULARIES
    vocabularies.mkdir()
    for name, vocabulary in program.vocabularies.items():
        write_vocabulary(vocabularies, name, vocabulary)
        if name in program.numbers:
            np.save(vocabularies / f"{name}.numbers.npy", program.numbers[name])
    text = json.dumps(program.document, indent=1, ensure_ascii=False)
    (folder / score.PROGRAM).write_text(text + "\n", encoding="utf-8")
    for module in _MODULES:
        file = Path(str(module.__file__))
        text = _ABSOLUTE.sub("from ", file.read_text(encoding="utf-8"))
        (folder / file.name).write_text(text, encoding="utf-8")


def _manifest(folder: Path, saved: SavedModel, facts: Mapping[str, Any]) -> dict[str, Any]:
    targets = saved.model.task.targets
    names = iter(score_names(targets))
    described = json.loads((folder / INPUTS_FILE).read_text())
    return {
        **facts,
        "inputs": [one["name"] for one in described["inputs"]],
        "targets": [
            {
                "name": target.name,
                "kind": target.kind,
                "classes": target.classes,
                "output": output,
                "columns": [next(names) for _ in range(1 if target.kind == "regression" else 2)],
            }
            for target, output in zip(targets, output_names(targets), strict=True)
        ],
        "tolerance": TOLERANCE,
    }


def write_manifest(folder: Path, facts: Mapping[str, Any]) -> None:
    """Write or replace `manifest.json`, with the facts and the hashes of all other files."""
    (folder / deltas.MANIFEST).unlink(missing_ok=True)
    made = {"format": deltas.FORMAT, "distrain": __version__, "files": deltas.hashes_of(folder)}
    text = json.dumps(deltas.signed({**made, **facts}), indent=1, ensure_ascii=False)
    (folder / deltas.MANIFEST).write_text(text + "\n", encoding="utf-8")


def _differs(
    rows: Mapping[str, list[Any]], actual: Mapping[str, Any], expected: Mapping[str, Any]
) -> DataError:
    apart = score.differences(actual, expected)
    name = max(apart, key=lambda one: float(np.nan_to_num(apart[one], nan=np.inf).max()))
    row = int(np.argmax(np.nan_to_num(apart[name], nan=np.inf)))
    shown = {column: repr(values[row])[:60] for column, values in list(rows.items())[:20]}
    return DataError(
        f"the export and predict score differently: {name} differs by {apart[name][row]:.2g}, and "
        f"{TOLERANCE:g} is allowed; nothing was written",
        where={"row of the sample": row, **shown},
        hint=_MISTAKE,
    )


def values_of(values: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return a column as a list of Python or NumPy values, without loss of precision.

    Exception: times with a time zone lose the digits after the microseconds. Nulls are `None`.
    """
    types = pa.types
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if types.is_dictionary(values.type):
        values = values.dictionary_decode()
    dtype = values.type
    if holds_lists(dtype):
        return [None if one.values is None else values_of(one.values) for one in values]
    if types.is_float32(dtype) or types.is_float16(dtype):
        return [None if one is None else np.float32(one) for one in values.to_pylist()]
    if types.is_timestamp(dtype) and dtype.tz is None:
        known = values.to_numpy(zero_copy_only=False)
        return [None if np.isnat(one) else one for one in known]
    if types.is_timestamp(dtype):
        values = values.cast(pa.timestamp("us", dtype.tz), safe=False)
    found: list[Any] = values.to_pylist()
    return found
