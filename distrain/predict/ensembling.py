"""Makes ensembles of saved models: checks that the models match, and writes the ensemble."""

import dataclasses
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from distrain.errors import InputError
from distrain.formatting import limit_lines
from distrain.jobs.job_view import JobView, Record
from distrain.jobs.run_paths import RunPaths
from distrain.jobs.spec.data import READING, RowsSpec
from distrain.jobs.spec.paths import absolute
from distrain.jobs.states import JobState
from distrain.metrics.report import BinaryReport
from distrain.models.heads.retrieval import ItemRetrievalTask
from distrain.models.saved_model import SavedModel
from distrain.runs.summary import summarise
from distrain.schema.column import Tags
from distrain.storage.outputs import atomic_dir
from distrain.train.data.vocabularies import WORKFLOW, Vocabularies


def ensemble_of(members: Mapping[str, SavedModel]) -> SavedModel:
    """Return the ensemble of saved models; the keys of `members` name them in errors.

    Raises:
        InputError: A member differs from the first in its targets, its columns, its options of
            reading rows or the meaning of its ids; or it is a retrieval model, which ranks items;
            or it is an ensemble.
    """
    (name, first), *others = members.items()
    for one, saved in members.items():
        if saved.members:
            raise InputError(
                f"{one} is an ensemble itself", hint="Name the runs that it was made of."
            )
        if isinstance(saved.model.task, ItemRetrievalTask):
            raise InputError(
                f"{one} ranks items, and its scores are not probabilities",
                hint="Scores of models of clicks, prices or classes can be averaged.",
            )
    meaning = Vocabularies.from_json(first.about)
    for one, saved in others:
        _check_alike(
            f"predicts different targets from {name}", one, _targets(first), _targets(saved)
        )
        _check_alike(f"reads different columns from {name}", one, _columns(first), _columns(saved))
        _check_alike(f"reads rows differently from {name}", one, _reading(first), _reading(saved))
        if unlike := meaning.unlike(Vocabularies.from_json(saved.about)):
            raise InputError(
                f"the ids of {one} differ in meaning from those of {name}: their data were "
                "prepared with different workflows",
                where={"columns": ", ".join(limit_lines(unlike, 5))},
                hint="Train all runs on data of one `distrain prep`.",
            )
    about = {READING: _reading(first), **meaning.to_json()}
    if seen := {one for saved in members.values() for one in saved.about.get("refitted_on", ())}:
        about["refitted_on"] = sorted(seen)
    return SavedModel.ensemble(list(members.values()), about)


def write_ensemble(
    path: Path,
    saved: SavedModel,
    report: BinaryReport,
    models: Sequence[Path | str],
    valid: Sequence[str],
    *,
    replace: bool = False,
) -> None:
    """Write an ensemble as the directory of a successful run, with `model/` and a summary.

    Args:
        report: The ensemble's metrics on validation rows.
        models: The folders of its members. The first member that has a copy of its workflow
            provides the ensemble's copy.
        valid: The file patterns of the validation rows, which are stored in the model's `about`.
        replace: Whether `path` may be replaced.

    Raises:
        OutputError: `path` exists and `replace` is false, or it cannot be written.
    """
    record = Record(
        split="valid",
        epoch=0,
        step=0,
        rows=report.rows,
        rows_total=0,
        elapsed_s=0.0,
        rows_per_s=None,
        loss=report.log_loss,
        normalised_entropy=report.normalised_entropy,
        auc=report.auc,
        auc_bound=report.auc_bound,
        targets=report.targets or None,
    )
    with atomic_dir(path, replace=replace) as folder:
        paths = RunPaths(folder)
        about = {**saved.about, "valid": [absolute(one) for one in valid]}
        dataclasses.replace(saved, about=about).save(paths.model)
        kept = (Path(model) / WORKFLOW for model in models)
        if workflow := next((one for one in kept if one.is_dir()), None):
            shutil.copytree(workflow, paths.model / WORKFLOW)
        view = JobView(
            path.name,
            path.name,
            JobState.SUCCEEDED,
            attempt=0,
            num_ranks=0,
            parameters=sum(one.numel() for one in saved.model.parameters()),
            model_path=str(RunPaths(path).model.absolute()),
        )
        text = json.dumps(summarise(view, [record]).to_json(), indent=2)
        paths.summary.write_text(text + "\n")


def _check_alike(
    what: str, name: str, expected: Mapping[str, Any], actual: Mapping[str, Any]
) -> None:
    apart = [
        f"{one}: {actual.get(one, 'absent')}, not {expected.get(one, 'absent')}"
        for one in {**expected, **actual}
        if expected.get(one) != actual.get(one)
    ]
    if not apart and list(expected) != list(actual):
        apart = [f"their order: {', '.join(actual)}"]
    if apart:
        raise InputError(
            f"{name} {what}, and all members of an ensemble must agree",
            where={"differences": "; ".join(limit_lines(apart, 5))},
            hint="Leave it out, or train it on the data and targets of the others.",
        )


def _targets(saved: SavedModel) -> dict[str, str]:
    return {
        target.name: f"{target.kind}, {target.classes} classes"
        if target.kind == "multiclass"
        else target.kind
        for target in saved.model.task.targets
    }


def _reading(saved: SavedModel) -> dict[str, Any]:
    """Return the options of reading that differ from the defaults, by name."""
    return RowsSpec(**saved.about.get(READING, {})).model_dump(exclude_defaults=True)


def _columns(saved: SavedModel) -> dict[str, str]:
    features = saved.schema.remove_by_tag(Tags.TARGET)
    ids, numbers = features.categorical.names, features.continuous.names
    descriptions = {}
    for column in features:
        kind = "ids" if column.name in ids else "numbers" if column.name in numbers else "unused"
        lists = f"lists of up to {column.max_list_length or 'any number of'} "
        size = "" if column.cardinality is None else f" below {column.cardinality}"
        descriptions[column.name] = (lists if column.holds_lists else "") + kind + size
    return descriptions
