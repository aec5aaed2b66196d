"""Turns a table into a job: infers its columns, prepares its rows once, and fits a spec to them."""

import hashlib
import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import numpy as np

from distrain.errors import InputError, SpecError
from distrain.formatting import command_line, join_names
from distrain.jobs.run_paths import RunPaths
from distrain.jobs.spec.fit_to_table import DEFAULT_KINDS, follow_length, leave_out_excluded
from distrain.jobs.spec.load import check_overrides, parse_spec, set_values, sets_section
from distrain.jobs.spec.presets import MODELS, check_kind
from distrain.launch.new_job import new_job
from distrain.prep.bad_lines import BadLineTally
from distrain.prep.features.config import FeatureConfig
from distrain.prep.features.document import FormatSpec
from distrain.prep.features.inference.infer import infer_features
from distrain.prep.features.inference.suggest import MEASURES_TIME
from distrain.prep.features.inference.user_choices import Task, UserChoices
from distrain.prep.features.table_file import SHOWN_COLUMNS, look_at
from distrain.prep.preparation import prepare
from distrain.prep.report_file import PREP_JSON, read_report
from distrain.prep.request import PrepRequest
from distrain.prep.rows_in_memory import is_dask, store_rows
from distrain.runs.run_file import has_succeeded
from distrain.storage.identity import file_identity
from distrain.storage.inputs import TABLE_SUFFIXES, InputFile, list_inputs
from distrain.storage.outputs import waiting_lock
from distrain.version import build
from distrain.workers.open_cluster import ClusterRequest, open_cluster

if TYPE_CHECKING:
    from distrain.prep.progress import ProgressCallback
    from distrain.prep.request import PrepResult

_PREPARING_THREADS = 2
_MOST_NAMED = 8
_KEEP_TIMES = (
    "note: if the model is for rows of the same times, validate on rows drawn at random, which "
    "keeps such columns: valid=0.1, or --valid 0.1"
)


@dataclass(frozen=True)
class TableRequest:
    """A table to train on.

    Attributes:
        rows: A table as for `store_rows`, or files, folders, globs or URLs, one or several.
        place: The folder for stored rows and prepared data, which later runs reuse.
        choices: The parts of the features document that the caller has set; the others are
            inferred.
        valid_rows: Validation rows, in the forms of `rows`; `None` for a part of `rows`.
        test_rows: Test rows, in the forms of `rows`; `None` for none, or for a part of `rows`.
        features: A features document, or its file; `None` to infer it.
        model: The name of a model or preset, or the section `model` of a job spec; `None` for a
            model that suits the table.
        scheduler: The Dask cluster that prepares the rows, in the forms of `ClusterRequest`.
        replaces_model: Whether the caller will replace the job's section `model`.
        max_bad: The largest share of bad lines of text that may be dropped; `None` to stop at the
            first.
        overrides: `section.field=value` overrides that the caller will apply to the job.
    """

    rows: Any
    place: Path
    choices: UserChoices = UserChoices()  # noqa: RUF009
    valid_rows: Any = None
    test_rows: Any = None
    features: Mapping[str, Any] | str | Path | None = None
    model: Mapping[str, Any] | str | None = None
    scheduler: Any = None
    replaces_model: bool = False
    max_bad: float | None = None
    overrides: tuple[str, ...] = ()

    @property
    def kind(self) -> str | None:
        """The name of the model; `None` for a model that suits the table."""
        model = self.model
        return model.get("kind") if isinstance(model, Mapping) else model


@dataclass(frozen=True)
class TableJob:
    """A job spec for a table, and the decisions that led to it."""

    document: dict[str, Any]  # the job spec
    features: str  # the features document, as YAML
    prepared: "PrepResult | None"  # `None` if the rows had been prepared before
    decisions: tuple[str, ...]  # what was inferred, as lines of text
    target: str  # the column of the first target
    warnings: tuple[str, ...] = ()  # of the preparation, also if the rows had been prepared before


def make_user_choices(
    target: str | Sequence[str] | None,
    task: Task | None = None,
    valid: Any = None,
    time: str | None = None,
    weight: str | Literal[False] | None = None,
    test: Any = None,
) -> tuple[UserChoices, Any, Any]:
    """Return the user's choices for the features document, and the validation and test rows.

    These rows are `valid` and `test` if they are tables, and `None` if they only say how to split
    the rows. Arguments are those of `distrain.fit`. Raises `InputError` if `target` is an empty
    list, or if a name of a column is neither text nor a number; whether the columns exist is
    checked later.
    """
    names = target if isinstance(target, list | tuple) else [] if target is None else [target]
    if target is not None and not names:
        raise InputError("target names no column", hint="Name the column to predict.")
    targets = tuple(_column_name("target", name) for name in names)
    time = None if time is None else _column_name("time", time)
    if weight is not None and weight is not False:
        weight = _column_name("weight", weight)
    (valid, valid_rows), (test, test_rows) = map(_split_or_rows, (valid, test))
    valid = False if valid_rows is not None else valid
    choices = UserChoices(targets, task, valid, time, weight, None if test is False else test)
    return choices, valid_rows, test_rows


def _split_or_rows(given: Any) -> tuple[Any, Any]:
    """Return how to split a table, or the rows that are given instead; the other is `None`."""
    if isinstance(given, np.bool_):
        given = bool(given)
    elif isinstance(given, Real) and not isinstance(given, bool):
        given = int(given) if isinstance(given, Integral) else float(given)
    is_split = isinstance(given, Mapping) and isinstance(given.get("by"), str)
    if given is None or is_split or isinstance(given, bool | int | float):
        return given, None
    return None, given


def _column_name(role: str, name: Any) -> str:
    """Return a column's name as Arrow has it: text, also if a DataFrame's names are numbers.

    Raises `InputError` for anything but text and numbers, such as an array of values.
    """
    if not isinstance(name, str | Real):
        raise InputError(
            f"{role} is a {type(name).__name__}, not the name of a column",
            hint=f"Make it a column of the table, and give its name: fit(table, {role}=COLUMN).",
        )
    return str(name)


def refuse_without_target(sources: Sequence[str]) -> NoReturn:
    """Raise an `InputError` with the columns of a table, of which none is named as the target.

    If the first source is a run folder, the error names the command that continues or uses the run.
    Raises `DataError` if there are no such files, if a folder has no file with the ending of a
    table, or if the first file is not a table.
    """
    _refuse_run(sources[0])
    first = list_inputs(sources, suffixes=TABLE_SUFFIXES)[0]
    columns = list(look_at(first.path, first.size_bytes, FormatSpec()).columns)
    raise InputError(
        "a table needs a target, the column to predict",
        where={"file": first.path, "columns": join_names(columns, SHOWN_COLUMNS)},
        hint="Name one of them: --target COLUMN, or fit(table, target=COLUMN).",
    )


def _refuse_run(source: str) -> None:
    """Raise an `InputError` if a source of rows is a run folder."""
    run = RunPaths(Path(source))
    if os.path.exists(run.run):  # unlike that of a path, False for a name that is too long
        raise InputError(
            "the folder holds a run, not a table",
            where={"path": source},
            hint=f"Score rows with it: {command_line('predict', source)}, or distrain evaluate."
            if has_succeeded(run)
            else f"Resume it: {command_line('train', '--resume', source)}",
        )


def job_of_table(
    request: TableRequest,
    say: Callable[[str], object],
    on_progress: "ProgressCallback | None" = None,
) -> TableJob:
    """Infer the columns, prepare the rows unless they are already prepared, and fit a job to them.

    Args:
        request: The table.
        say: Called with notes for the user.
        on_progress: Progress callback of `prepare`.

    Raises:
        DataError: The rows, or a requested column, cannot be used.
        SpecError: An override has mistakes.
        DistrainError: Other errors of `prepare`, `store_rows` and `new_job`.
    """
    place = request.place.absolute()
    if (kind := request.kind) is not None:
        check_kind(kind)
    _check_overrides(request)  # before the rows are prepared, which takes time
    files = _files(request.rows, place)
    valid, test = (
        [] if rows is None else _files(rows, place)
        for rows in (request.valid_rows, request.test_rows)
    )
    config, text, decisions = _features(request, files, say)
    data = place / f"data-{_key((files, valid, test), config, text, request.max_bad)}"
    inputs, valid_inputs, tested = (tuple(f.path for f in one) for one in (files, valid, test))
    wanted = PrepRequest(
        inputs,
        data,
        valid=valid_inputs,
        test=tested,
        features=config,
        skip_bad_lines=request.max_bad is not None,
        max_bad=request.max_bad or 0.0,
    )
    prepared = _prepared_once(wanted, _scheduler(request), say, on_progress)
    document = _job(data, request, say)
    report = read_report(data) or {}
    facts = (
        *decisions,
        *_dropped(report),
        _model_fact(document, request, report),
        f"prepared rows: {data}",
    )
    warnings = tuple(report.get("warnings", ()))
    return TableJob(document, text, prepared, facts, config.document.target.column, warnings)


def _check_overrides(request: TableRequest) -> None:
    """Raise `SpecError` if overrides have mistakes, for any model that the job may get."""
    kind = request.kind
    kinds: tuple[str | None, ...] = (kind if kind in MODELS else None,)
    if kind is None and not request.replaces_model:
        kinds = DEFAULT_KINDS
    mistakes = []
    for kind in kinds:
        try:
            check_overrides(request.overrides, kind)
        except SpecError as error:
            mistakes.append(error)
    if len(mistakes) == len(kinds):
        raise mistakes[0]


def _dropped(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield lines on the rows that a preparation left out, from its report."""
    if by_kind := report.get("bad_lines", {}).get("by_kind"):
        bad = BadLineTally(by_kind)
        yield f"bad lines: {bad.count:,} dropped ({bad.causes})"
    if unlabelled := report.get("rows_without_label"):
        yield f"rows without a target: {unlabelled:,} left out"


def _prepared_once(
    wanted: PrepRequest,
    scheduler: Any,
    say: Callable[[str], object],
    on_progress: "ProgressCallback | None",
) -> "PrepResult | None":
    """Prepare rows and return the result; `None` if they were prepared before.

    If another process prepares them now, wait for it.
    """
    done = Path(wanted.out) / PREP_JSON

    def on_wait() -> None:
        say("waiting for another process, which prepares the same rows")

    if done.exists():
        return None
    with waiting_lock(done.parent, on_wait):
        if done.exists():
            return None
        cluster = ClusterRequest(scheduler, _PREPARING_THREADS, in_process=True)
        with open_cluster(cluster) as client:
            return prepare(wanted, client, on_progress)


def _files(rows: Any, place: Path) -> list[InputFile]:
    names = [rows] if isinstance(rows, str | Path) else rows
    if isinstance(names, list | tuple) and names and all(isinstance(n, str | Path) for n in names):
        _refuse_run(str(names[0]))
        return list_inputs([str(name) for name in names])
    return list_inputs([store_rows(rows, place)])


def _features(
    request: TableRequest, files: Sequence[InputFile], say: Callable[[str], object]
) -> tuple[FeatureConfig, str, tuple[str, ...]]:
    """Return the features document, its text, and lines for the user on the inferred features.

    A given document is read, and there are no lines. Raises `SpecError` if it has mistakes, and
    `DataError` if nothing can be inferred from the files.
    """
    if (given := request.features) is not None:
        config = (
            FeatureConfig.load(given)
            if isinstance(given, str | Path)
            else FeatureConfig.parse(given)
        )
        return config, config.text, ()
    skips = request.max_bad is not None
    inferred = infer_features(files, request.choices, skip_bad_lines=skips)
    for warning in inferred.warnings:
        say(f"warning: {warning}")
    document, left_out = inferred.features.document, inferred.left_out
    omitted = [f"{name or 'the unnamed column'} ({why})" for name, why in left_out.items()]
    split = inferred.split_reason if request.valid_rows is None else "the rows given for it"
    more = inferred.reasons.get("more_targets")
    lines = (
        f"target: {document.target.column} ({inferred.target_reason})",
        *([f"further targets: {more}"] if more else ()),
        f"features: {len(document.columns)} from {inferred.sample}",
        *([f"left out: {join_names(omitted, _MOST_NAMED)}"] if omitted else ()),
        f"validation: {split}",
        *([_KEEP_TIMES] if MEASURES_TIME in left_out.values() else ()),
    )
    return inferred.features, inferred.text, lines


def _key(
    inputs: Sequence[Sequence[InputFile]], config: FeatureConfig, text: str, max_bad: float | None
) -> str:
    """Return a name for the prepared rows: a hash of all that determines them.

    These are the versions of the input files and side tables, the features document, the share of
    bad lines that may be dropped (`None`: none are), and this build of distrain.
    """
    paths = [file.path for files in inputs for file in files] + [
        join.file for join in config.document.joins
    ]
    # A file without a version may have other rows each time, so its rows are not reused.
    versions = [file_identity(path) or uuid.uuid4().hex for path in paths]
    counts = str([len(files) for files in inputs])
    content = "\n".join([build(), text, str(max_bad), counts, *versions])
    return hashlib.sha256(content.encode()).hexdigest()[:20]


def _scheduler(request: TableRequest) -> Any:
    """Return the cluster that prepares the rows; `None` for threads of this process.

    By default rows of a Dask collection are prepared on the cluster of the current client.
    """
    if request.scheduler is not None or not is_dask(request.rows):
        return request.scheduler
    from distributed import default_client

    with suppress(ValueError):  # there is no client: Dask computes in this process
        return default_client()
    return None


def _job(data: Path, request: TableRequest, say: Callable[[str], object]) -> dict[str, Any]:
    """Return the job spec for the prepared rows in `data`."""
    changes_model = request.replaces_model or sets_section(request.overrides, "model")
    may_be_linear = not (request.model or changes_model)
    # Options of one kind of model would be unknown to another one that an override names.
    kind = set_values(request.overrides, "model").get("kind")
    kind = kind if kind in MODELS else request.kind
    document = new_job(data, kind, say, may_be_linear=may_be_linear)
    if isinstance(request.model, Mapping):
        document["model"] |= request.model
    if request.scheduler is None:
        document["resources"] |= {"backend": "inline", "num_ranks": 1}
    values = {section: set_values(request.overrides, section) for section in document}
    follow_length(document["train"], values["train"])
    leave_out_excluded(document, values)
    return document


def _model_fact(
    document: Mapping[str, Any], request: TableRequest, report: Mapping[str, Any]
) -> str:
    """Return a line for the user on the job's model and training, with the caller's overrides.

    `report` is that of the preparation. Raises `SpecError` if overrides do not suit the job.
    """
    overrides: Sequence[str] = request.overrides
    if request.replaces_model:  # a built-in model's section may not have the fields set
        overrides = [one for one in overrides if not sets_section([one], "model")]
    rows = report.get("rows", {}).get("train", 0)
    spec = parse_spec(document, overrides).for_rows(rows)
    model = "model_fn" if request.replaces_model else spec.model.kind
    train, rate = spec.train, spec.train.optimizer
    epochs = f"{train.epochs} epoch{'' if train.epochs == 1 else 's'}"
    if train.early_stopping is not None and train.epochs != 1:
        epochs += " at most"
    if train.max_steps is not None:
        epochs += f", {train.max_steps} steps at most"
    batch = f"{train.global_batch_size} rows a step"
    return f"model: {model}, {epochs}, {batch}, {rate.kind} {rate.lr:g}"
