"""A model's export with the workflow of its data: a folder that scores raw rows."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from distrain.errors import DataError, InputError
from distrain.etl import FeatureConfig, RawSample, Workflow, first_rows, saved_features
from distrain.models import Form, SavedModel, TableForm, write_export
from distrain.models.heads import output_names
from distrain.scoring.in_memory import score_rows
from distrain.scoring.raw import RawOptions, workflow_for
from distrain.scoring.score_columns import score_names
from distrain.scoring.serving import preprocess, raw_values, score, steps
from distrain.scoring.serving.program import Program, program_of, write_vocabulary
from distrain.scoring.serving.sample import SAMPLE_ROWS, values_of, with_edges, writable, write_text
from distrain.storage import whole_dir
from distrain.version import __version__

TOLERANCE = 1e-6
_MODULES = (score, preprocess, raw_values, steps)
_MODELS = {"torch": "model.pt2", "onnx": "model.onnx"}


@dataclass(frozen=True)
class ServedExport:
    """What the check of an export found."""

    rows: int  # the golden rows
    refused: int  # rows of the sample, and made ones, that hold values that cannot be used
    largest_difference: float  # to the probabilities of `predict`


def write_served(
    path: str | Path,
    model_dir: str | Path,
    saved: SavedModel,
    to: Form,
    sample: str,
    *,
    replace: bool = False,
    validation: Mapping[str, Any] | None = None,
    beside: Callable[[Path], None] | None = None,
) -> ServedExport:
    """Write a model and the workflow of its data to a folder that needs no distrain.

    The rows of `sample`, and such with odd values, are scored by the folder and by `predict`.

    Args:
        sample: A file of raw rows, of which the first are taken.
        validation, beside: As of `write_export`.

    Raises:
        InputError: The workflow makes a column that cannot be made of one row alone.
        DataError: The sample or the workflow cannot be read; or scores differ, and nothing is
            written.
    """
    workflow_dir = workflow_for(model_dir, saved)
    workflow, features = Workflow.load(workflow_dir), saved_features(workflow_dir)
    first = first_rows(sample, workflow, features, SAMPLE_ROWS)
    program = program_of(workflow, features, saved, first.form)
    with whole_dir(path, replace=replace) as folder:
        write_export(folder / "model", saved, to, validation=validation, beside=beside)
        for file in (folder / "model").iterdir():
            file.rename(folder / file.name)
        (folder / "model").rmdir()
        _write_program(folder, program)
        manifest = _manifest(folder, saved, to)
        _write_manifest(folder, manifest)
        golden, checked = _checked(folder, model_dir, with_edges(first), features)
        text = json.dumps(golden, ensure_ascii=False, separators=(",", ":"))
        (folder / score.GOLDEN).write_text(text + "\n", encoding="utf-8")
        _write_manifest(folder, manifest | {"largest_difference": checked.largest_difference})
    return checked


def _write_program(folder: Path, program: Program) -> None:
    vocabularies = folder / score.VOCABULARIES
    vocabularies.mkdir()
    for name, vocabulary in program.vocabularies.items():
        write_vocabulary(vocabularies, name, vocabulary, program.numbers.get(name))
    text = json.dumps(program.document, indent=1, ensure_ascii=False)
    (folder / score.PROGRAM).write_text(text + "\n", encoding="utf-8")
    room = score.__name__.rpartition(".")[0]
    for module in _MODULES:
        file = Path(str(module.__file__))
        text = file.read_text(encoding="utf-8").replace(f"from {room}.", "from ")
        (folder / file.name).write_text(text, encoding="utf-8")


def _manifest(folder: Path, saved: SavedModel, to: Form) -> dict[str, Any]:
    targets = saved.model.task.targets
    names = iter(score_names(targets))
    described = json.loads((folder / "inputs.json").read_text())
    return {
        "format": score.FORMAT,
        "distrain": __version__,
        "model": _MODELS[to],
        "inputs": [one["name"] for one in described["inputs"]],
        "targets": [
            {
                "name": target.name,
                "kind": target.kind,
                "output": output,
                "columns": [next(names) for _ in range(1 if target.kind == "regression" else 2)],
            }
            for target, output in zip(targets, output_names(targets), strict=True)
        ],
        "tolerance": TOLERANCE,
    }


def _write_manifest(folder: Path, manifest: Mapping[str, Any]) -> None:
    names = sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())
    files = {name: score.sha256_of(folder / name) for name in names if name != score.MANIFEST}
    document = {**manifest, "version": score.version_of(files), "files": files}
    text = json.dumps(document, indent=1, ensure_ascii=False)
    (folder / score.MANIFEST).write_text(text + "\n", encoding="utf-8")


def _checked(
    folder: Path, model_dir: str | Path, sample: RawSample, features: FeatureConfig | None
) -> tuple[dict[str, Any], ServedExport]:
    """The golden rows with the scores of `predict`, which those of the folder are compared with."""
    scorer = score.Scorer(folder)
    rows = {name: values_of(sample.table[name]) for name in sample.table.column_names}
    usable, refused = [], 0
    for place in range(sample.table.num_rows):
        row = {name: [values[place]] for name, values in rows.items()}
        if (
            sample.form == "csv"
            and features
            and not writable([v[0] for v in row.values()], features)
        ):
            continue
        try:
            scorer.preprocessor.inputs(row, sample.form)
        except preprocess.BadValue:
            refused += 1
        else:
            usable.append(place)
    if not usable:
        raise DataError(
            "no row of the sample can be scored",
            hint="Give --sample raw rows as `distrain predict` takes them.",
        )
    kept = {name: [values[place] for place in usable] for name, values in rows.items()}
    wanted = _predicted(model_dir, sample.table.take(pa.array(usable)), kept, sample.form, features)
    found = scorer.score(kept, sample.form)
    difference = score.largest_difference(found, wanted)
    if not difference <= TOLERANCE:
        raise _differs(kept, found, wanted, difference)
    golden = {"form": sample.form, "rows": score.encoded(kept), "scores": wanted}
    return golden, ServedExport(len(usable), refused, difference)


def _predicted(
    model_dir: str | Path,
    table: pa.Table,
    rows: dict[str, list[Any]],
    form: str,
    features: FeatureConfig | None,
) -> dict[str, list[Any]]:
    raw = RawOptions(is_raw=True)
    if form == "table":
        scores = score_rows(model_dir, table, raw=raw)
    else:
        assert features is not None  # Criteo's text has none, and is a table with types
        with tempfile.TemporaryDirectory(prefix="distrain-export-") as place:
            scores = score_rows(model_dir, write_text(rows, form, features, Path(place)), raw=raw)
    if scores.num_rows != table.num_rows:
        raise DataError(f"predict scores {scores.num_rows} of {table.num_rows} golden rows")
    of_rows = ("logit", "probability", "prediction", "class")
    return {n: scores[n].to_pylist() for n in scores.column_names if n.startswith(of_rows)}


def _differs(
    rows: Mapping[str, list[Any]],
    found: Mapping[str, Any],
    wanted: Mapping[str, Any],
    difference: float,
) -> DataError:
    name = next(n for n in wanted if n.startswith(("probability", "prediction")))
    apart = np.abs(found[name] - np.asarray(wanted[name]))
    row = int(np.argmax(apart if apart.ndim == 1 else apart.max(axis=1)))
    shown = {column: repr(values[row])[:60] for column, values in list(rows.items())[:20]}
    return DataError(
        f"the export scores otherwise than predict: {name} differs by {difference:.2g}, and "
        f"{TOLERANCE:g} is allowed; nothing was written",
        where={"row of the sample": row, **shown},
        hint="This is a mistake of distrain: please report it. Without --with-workflow the model "
        "is exported for ids.",
    )


def check_served(sample: str | None, tables: TableForm) -> str:
    """The file of raw rows; an `InputError` if none was given, or if tables are rounded."""
    if tables != "fp32":
        raise InputError(
            f"--with-workflow keeps tables as they were trained, not in {tables}",
            hint="Leave --tables out: scores are compared with those of `distrain predict`.",
        )
    if sample is None:
        raise InputError(
            "--with-workflow needs raw rows to check the export with",
            hint="Give --sample FILE: raw rows as `distrain prep` took them, labelled or not.",
        )
    return sample
