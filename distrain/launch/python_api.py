"""Trains from Python: `fit`, and the `Run` that it returns."""

import functools
import inspect
import json
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar

from distrain.errors import DistrainError, InputError, SpecError
from distrain.formatting import count, main_metrics, number
from distrain.jobs.run_paths import PREPARED, RunPaths, new_job_id
from distrain.jobs.spec.explain import ARGUMENTS_OF_OTHER_TOOLS, spec_field
from distrain.jobs.spec.job import JOB_NAME, JobSpec
from distrain.jobs.spec.load import is_named_as_table, parse_spec, read_document
from distrain.jobs.spec.models.kinds import CustomSpec
from distrain.jobs.target_names import own_name, with_own_name
from distrain.launch.notebook import default_progress
from distrain.launch.reporting import LoggedProgress, Progress
from distrain.launch.resuming import find_run
from distrain.launch.run import CallbackFailed, RunRequest, train
from distrain.runs.attempts import read_records
from distrain.runs.report.outcome import SCORED_ROWS, error_of_score
from distrain.runs.run_file import check_new_run, read_run_and_spec, read_summary
from distrain.runs.summary import Summary
from distrain.storage.urls import url_of

if TYPE_CHECKING:
    import numpy as np
    import pandas
    from distributed import Client
    from distributed.deploy import Cluster

    from distrain.jobs.job_view import Record
    from distrain.launch.tables import TableJob
    from distrain.metrics.custom import Metric
    from distrain.metrics.evaluation import Evaluation
    from distrain.models.blueprint import Blueprint
    from distrain.models.export import Form
    from distrain.models.saved_model import SavedModel
    from distrain.predict.importance import Importance
    from distrain.prep.features.inference.user_choices import Task
    from distrain.runs.sinks.base import Sink

_ONLY_HERE = """\
warning: model_fn is defined only in this process: its run can be evaluated from here, or with
distrain.Run(run_dir, model_fn=...). The commands evaluate, predict and export cannot make its
model; for these, move model_fn to a module of a package that DISTRAIN_MODEL_PACKAGES names"""

_OF_COLUMNS = ("target", "task", "valid", "test", "time", "weight")
_OF_TABLES = (*_OF_COLUMNS, "features", "model", "max_bad")
_UNUSED = {
    "resume": (
        ("data", "run_dir", "overwrite", "options", *_OF_TABLES),
        "fit(resume=) uses the run's own spec, rows and directory",
        "Leave these arguments out; change fields of the spec with overrides.",
    ),
    "features": (
        _OF_COLUMNS,
        "a features document says which columns are target, weight and validation",
        "Leave these arguments out, or features.",
    ),
    "model_fn": (("model",), "model_fn makes the model", "Leave model or model_fn out."),
    "no model_fn": (
        ("options",),
        "options are for model_fn, which is not given",
        "Options of a built-in model belong in the spec's section `model`.",
    ),
    "spec": (
        _OF_TABLES,
        "these arguments need a table and its target, but no target is named",
        "Name the column to predict: fit(table, target=COLUMN).",
    ),
}
"""For each form of a call of `fit`: the arguments that do not apply to it, and the error's message
and hint.
"""

P = ParamSpec("P")
Value = TypeVar("Value")
MakeModel = Callable[..., "Blueprint"]
Spec = JobSpec | Mapping[str, Any] | str | Path


class Run:
    """A finished run, opened from its directory.

    Args:
        run_dir: The run folder.
        model_fn: The function that made the model, if this process cannot import it by the name in
            the run's spec; it must make the same model. `None` for a named model.

    Attributes:
        summary: The content of `summary.json` when the run was opened. `records` and `history` are
            read again at each access. After resuming, use the `Run` that `fit` returns.

    Raises:
        InputError: The directory holds no finished run, or `model_fn` does not match its model.
    """

    def __init__(self, run_dir: str | Path, model_fn: MakeModel | None = None):
        self.run_dir = Path(run_dir).expanduser()
        self.model_fn = model_fn
        self._names: dict[str, MakeModel] = {}
        self.summary: Summary = _read_summary(self.run_dir)
        if model_fn is not None:
            _, spec = read_run_and_spec(self.run_dir)
            self._names = {_function_of(spec): model_fn}

    def __repr__(self) -> str:
        summary = self.summary
        score = f"AUC {number(summary.auc, 4)}"
        targets = with_own_name(summary.targets, own_name(RunPaths(self.run_dir).model))
        if summary.auc is None and (of_targets := main_metrics(targets)):
            score = " ".join(of_targets[0])
        error = error_of_score(summary.to_json())
        score += f" ± {error[1]:.2g}" if error else ""
        rows = SCORED_ROWS.get(summary.scored_on or "")
        scores = f", {score} on {count(summary.scored_rows)} {rows}" if rows else ""
        return f"<Run {self.run_dir}: {summary.state}, {count(summary.steps)} steps{scores}>"

    @property
    def records(self) -> "list[Record]":
        """The run's records, one for each training report and each validation."""
        return read_records(RunPaths(self.run_dir))

    @property
    def history(self) -> "pandas.DataFrame":
        """The records as a DataFrame: a row per record, a column per scalar metric with values.

        After a refit, the column `is_refit` is True in the rows of its training.
        """
        import pandas

        rows = [record.figures() for record in self.records]
        history = pandas.DataFrame(rows).dropna(axis="columns", how="all")
        if self.summary.refit is not None:
            history["is_refit"] = history["step"] > self.summary.refit["step"]
        return history

    def load_model(self) -> "SavedModel":
        """Load the trained model on the CPU; see `distrain.models.load_model`."""
        from distrain.models.custom import handed_over
        from distrain.models.saved_model import load_model

        with handed_over(names=self._names):
            return load_model(RunPaths(self.run_dir).model)

    @property
    def classes(self) -> "np.ndarray[Any, Any]":
        """The values of the first target's classes, `[classes]`, in the order of `predict_proba`.

        For a binary target whose values are `no` and `yes`, the classes are these values. If only
        one value is known, such as `yes` in `equals: yes`, they are `not yes` and `yes`. If the
        rows were prepared by other tools, the values are the integers from 0.

        Raises:
            InputError: The first target is a regression.
        """
        import numpy as np

        from distrain.predict.raw_rows import are_of_one_type, features_of, values_of_classes

        saved = self.load_model()
        target = saved.model.task.targets[0]
        if target.kind == "regression":
            raise InputError(
                "the model's first target has no classes", where={"target": target.name}
            )
        features = features_of(RunPaths(self.run_dir).model, saved)
        values = values_of_classes(features, target) or range(target.classes)
        return np.array(values, dtype=None if are_of_one_type(values) else object)

    def predict(
        self, rows: Any, *, keep: Sequence[str] = (), raw: bool | None = None
    ) -> "pandas.DataFrame":
        """Return the scores of rows, in their order; a table needs no target column.

        The scores of a DataFrame keep its index, so that `rows.join(run.predict(rows))` puts each
        score beside its row. Rows are scored in this process; the model and vocabularies stay
        loaded.

        Args:
            rows: A pandas or polars DataFrame, an Arrow table, a mapping of arrays, a list of
                dictionaries, or files. They are raw, like the run's data before preparation, or
                prepared by the run's own workflow. Strings in columns of numbers or times are
                parsed as in a text file.
            keep: Input columns to return as well.
            raw: Whether rows are raw; `None` decides by their columns.

        Returns:
            Columns `logit` and `probability` for a binary target, `prediction` for a regression
            target. For a multiclass target `class` (an index of `classes`), `probability` (lists)
            and, if the values of the classes are known, `class_value`. With several targets each
            name ends in `_TARGET`. Raw rows in files also have `file` and `row_number`; raw rows in
            memory have `row_number`.

        Raises:
            DataError: The rows cannot be used.
            InputError: The rows could be raw or prepared, and `raw` is `None`; or they are raw, and
                the workflow makes histories of earlier events.
        """
        import pandas

        from distrain.models.custom import handed_over
        from distrain.predict.in_memory import score_rows
        from distrain.predict.raw_rows import RawOptions

        model = RunPaths(self.run_dir).model
        with handed_over(names=self._names):
            scores = score_rows(model, rows, keep=keep, raw=RawOptions(raw)).to_pandas()
        if isinstance(rows, pandas.DataFrame):
            # The scores of prepared rows have no row numbers (perhaps a kept column of that name):
            # then each row has a score.
            numbers = None if "row_number" in keep else scores.get("row_number")
            scores.index = rows.index if numbers is None else rows.index.take(numbers)
        return scores

    def predict_proba(self, rows: Any, *, raw: bool | None = None) -> "np.ndarray[Any, Any]":
        """Return the class probabilities of the model's only target; arguments as for `predict`.

        Returns:
            `[rows, classes]`, float32; for a binary target the columns are 0, then 1.

        Raises:
            InputError: The model has several targets, or a regression target; other errors are
                those of `predict`.
        """
        import numpy as np

        scores = self.predict(rows, raw=raw)
        if "probability" not in scores:
            raise InputError(
                "the model does not have exactly one target of classes",
                where={"scores": ", ".join(scores.columns)},
                hint="Use the columns that `predict` returns.",
            )
        found = np.array(scores["probability"].tolist(), np.float32)
        return found if found.ndim == 2 else np.column_stack([1 - found, found])

    def importance(self, rows: Any, *, seed: int = 0) -> "Importance":
        """Measure how much the first target's metric worsens if a column is shuffled, by column.

        These are columns of the raw rows; all features made of a column are shuffled together.

        Args:
            rows: Labelled rows, as for `evaluate`. Its errors are raised here, too.
            seed: Seed of the shuffling.
        """
        from distrain.models.custom import handed_over
        from distrain.predict.in_memory import importance_of_rows

        with handed_over(names=self._names):
            return importance_of_rows(RunPaths(self.run_dir).model, rows, seed)

    def report(self, out: str | Path | None = None) -> Path:
        """Write the run's report, one HTML page; return its path, by default in `run_dir`."""
        from distrain.runs.report.run_page import write_report

        page = RunPaths(self.run_dir).report if out is None else Path(out)
        write_report(self.run_dir, page)
        return page

    def export(self, out: str | Path, *, to: "Form" = "torch", with_workflow: bool = False) -> Path:
        """Write the model to a folder in a form that does not need distrain; return the folder.

        Warns (`UserWarning`) if ONNX cannot express the preprocessing of some columns, so that the
        folder lacks `raw.onnx`.

        Args:
            out: The folder, which must not exist.
            to: `"torch"` or `"onnx"`.
            with_workflow: Whether the folder also gets the run's workflow, so that it scores raw
                rows.

        Raises:
            OutputError: The folder exists or cannot be written.
            ModelError: The model cannot be exported in this form.
            InputError: The workflow cannot be exported, or is missing.
        """
        from distrain.predict.serving.folder import export_folder

        folder, saved = RunPaths(self.run_dir).model, self.load_model()
        written = export_folder(Path(out), folder, saved, to, with_workflow=with_workflow)
        if to == "onnx" and written.served and (reasons := written.served.no_graph):
            told = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
            warnings.warn(f"raw.onnx is not written; {told}", stacklevel=2)
        return Path(out)

    def evaluate(self, rows: Any, *, raw: bool | None = None) -> "Evaluation":
        """Score labelled rows in this process and return the metrics; arguments as for `predict`.

        The result has the metrics as attributes: `run.evaluate(rows).rmse` of a regression, `auc`
        of a binary target, `accuracy` of a multiclass target. `targets` has those of all targets.

        Without `raw`, the columns decide whether the rows are raw. User-defined metrics are
        computed in validations only. Raises `DataError` for rows that cannot be scored or lack the
        targets, and `InputError` if they could be raw or prepared.
        """
        from distrain.models.custom import handed_over
        from distrain.predict.in_memory import evaluate_rows
        from distrain.predict.raw_rows import RawOptions

        with handed_over(names=self._names):
            return evaluate_rows(RunPaths(self.run_dir).model, rows, raw=RawOptions(raw))


def load(run_dir: str | Path, model_fn: MakeModel | None = None) -> Run:
    """Open a finished run to score rows: `distrain.load("runs/first").predict(rows)`.

    Arguments and errors are those of `Run`.
    """
    return Run(run_dir, model_fn)


def _with_suggestions(function: Callable[P, Value]) -> Callable[P, Value]:
    """Make errors about unknown and unnamed arguments name the argument, or field, that is meant.

    The first is a `TypeError`. Labels beside the rows, as for scikit-learn, are an `InputError`.
    """
    known = inspect.signature(function).parameters

    @functools.wraps(function)
    def call(*arguments: P.args, **named: P.kwargs) -> Value:
        if len(arguments) > 1:
            column = getattr(arguments[1], "name", None)
            column = column if isinstance(column, str) else "y"
            raise InputError(
                f"{function.__name__}() takes one table, which has the labels as a column: target=",
                hint=f'Write fit(X.assign({column}=y), target="{column}"). The estimators of '
                "distrain.sklearn have fit(X, y).",
            )
        for name in (one for one in named if one not in known):
            field, other = spec_field(name), ARGUMENTS_OF_OTHER_TOOLS.get(name)
            meant = f"{other}=" if other in known else field and f'overrides={{"{field}": ...}}'
            hint = f"; did you mean {meant}?" if meant else ""
            raise TypeError(f"{function.__name__}() has no argument {name!r}{hint}")
        return function(*arguments, **named)

    return call


@_with_suggestions
def fit(
    data: Any = None,
    /,
    *,
    target: str | Sequence[str] | None = None,
    task: "Task | None" = None,
    valid: Any = None,
    test: Any = None,
    time: str | None = None,
    weight: str | Literal[False] | None = None,
    model: Mapping[str, Any] | str | None = None,
    features: Mapping[str, Any] | str | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    model_fn: MakeModel | None = None,
    options: Mapping[str, Any] | None = None,
    run_dir: str | Path | None = None,
    overwrite: bool = False,
    max_bad: float | None = None,
    resume: "Run | str | Path | None" = None,
    scheduler: "str | Client | Cluster | None" = None,
    progress: Progress | None = None,
    callbacks: "Sequence[Callable[[Record], object]]" = (),
    metrics: "Mapping[str, type[Metric]] | None" = None,
    sinks: "Sequence[str | Sink]" = (),
    curves: bool = True,
) -> Run:
    """Train a model on a table, or as a job spec describes, and return the run when it has ended.

    `fit(table, target="clicked")` infers what the columns are, prepares the rows, fits a job to
    them and trains it. It reports what it inferred and chose, and writes it to the run folder as
    `features.yaml` and `job.yaml`. Prepared rows are kept in `.prepared` beside the run folder
    and used again for the same rows and features. `fit(spec)` trains on rows that are prepared
    already.

    Args:
        data: With `target` or `features`, a table: a DataFrame of pandas, polars or Dask, an Arrow
            table, any object with Arrow's C stream, a mapping of arrays, or files, folders and
            globs. Otherwise a job: a spec, a document as in its YAML file, or the path of that
            file; a job without a name is named after `run_dir`. `None` with `resume`.
        target: The column to predict, or several.
        task: `"binary"`, `"regression"` or `"multiclass"`; `None` decides by the target's values.
        valid: The table's validation rows: a share such as 0.1, drawn at random or, with `time`,
            the latest; a number of last rows; a section `split` of a features document, such as
            `{"by": "hash", "column": "user", "share": 0.1}`; another table; `False` for none.
            `None` uses about a tenth, the latest rows if there are times.
        test: The table's test rows, in the forms of `valid`; `None` for none. They are used for a
            final evaluation, `Run.summary.test`, and nothing else.
        time: A time column that orders the table: the latest rows are for testing, if `test` is a
            share, and those before them for validation.
        weight: The column of row weights; `None` to look for one by its name, `False` for none.
        model: The name of a model, or the section `model` of a job spec; `None` chooses a model
            that suits the table.
        features: A features document, or its file, instead of inferred features.
        overrides: Fields of the spec to set, by path: `{"train.optimizer.lr": 0.01}`.
        model_fn: Makes the model, as `model_fn(schema, **options)`, instead of a section `model`,
            which the document or file must then not have. The inline backend accepts any
            function. With other backends the workers import it by the name of its module, which
            their operator must have allowed (`DISTRAIN_MODEL_PACKAGES`). With `resume` it must make
            the same model as before; `None` then uses the `model_fn` of the `Run`, if it has one.
        options: Keyword arguments for `model_fn`, JSON values. Not with `resume`, which keeps the
            run's options.
        run_dir: The run folder; every worker must see it. `None` for `runs/JOB`.
        overwrite: Whether a run in `run_dir` may be replaced; it is removed once the new job has
            passed its checks.
        max_bad: The largest share of a table's lines of text that may be bad; they are dropped.
            `None` stops at the first bad line.
        resume: A run, or its directory, to resume from its newest checkpoint, with its spec.
        scheduler: A Dask cluster: a client, a cluster, or its scheduler's address. The cluster
            keeps running when the job ends. `None`: a job with the backend `dask` gets a new
            cluster on this machine; a table is prepared and trained on in this process.
        progress: Reports the progress; `None` for a bar and a chart in a notebook, and otherwise
            lines on standard error. If that is not a terminal, and the process has configured
            logging, the lines go to the log `distrain` instead.
        callbacks: Called in this process with each new record of training and validation.
            An exception ends the job and is raised by `fit`.
        metrics: User-defined validation metrics, by their names in records: subclasses of
            `distrain.metrics.Metric`, which workers import as they do `model_fn`.
        sinks: Further destinations of the records: `"tensorboard"`, `"mlflow:URI"`, or user-defined
            sinks (`distrain.runs.sinks.base.Sink`).
        curves: Whether to draw `curves.png` at the end, which takes a second or two.

    Raises:
        SpecError: The spec cannot be used.
        DistrainError: The inputs cannot be used, or the job failed.
    """
    from distrain.models.custom import handed_over, is_importable, name_of

    own = dict(metrics or {})
    if not isinstance(overrides or {}, Mapping):
        raise SpecError(
            f"overrides is {overrides!r}, not values by path",
            hint='Write overrides={"train.epochs": 3}.',
        )
    fields = dict(overrides or {})
    if own:
        fields["evaluate.metrics"] = {name: name_of(metric) for name, metric in own.items()}
    words = tuple(f"{path}={json.dumps(value, default=_plain)}" for path, value in fields.items())
    reporter = progress or default_progress()
    arguments = {"target": target, "task": task, "valid": valid, "time": time, "weight": weight}
    arguments["test"] = test
    given = arguments | {"features": features, "model": model, "max_bad": max_bad, "data": data}
    given |= {"run_dir": run_dir, "overwrite": overwrite or None, "options": options or None}
    is_table = target is not None or features is not None
    _refuse_unused(
        given,
        {
            "resume": resume is not None,
            "features": features is not None,
            "model_fn": is_table and model_fn is not None,
            "no model_fn": resume is None and model_fn is None,
            "spec": not is_table,
        },
    )
    table = None
    if resume is not None:
        if isinstance(resume, Run):
            model_fn = model_fn or resume.model_fn
            resume = resume.run_dir
        root = Path(resume).expanduser()
        job_id, job, resumed = find_run(root, words)
    else:
        if is_table:
            if run_dir is not None:  # before the rows are prepared, which takes time
                check_new_run(RunPaths(Path(run_dir).expanduser()), overwrite=overwrite)
            place = Path("runs") if run_dir is None else Path(run_dir).expanduser().parent
            table = _table_job(
                data,
                arguments,
                reporter,
                place=place / PREPARED,
                features=features,
                model=model,
                scheduler=scheduler,
                replaces_model=model_fn is not None,
                max_bad=max_bad,
                overrides=words,
            )
            data = table.document
            if model_fn is not None:
                del data["model"]
        job, resumed = _job(data, words, model_fn, options or {}, run_dir), None
        job_id = new_job_id(job.name)
        root = Path(run_dir).expanduser() if run_dir is not None else Path("runs") / job_id
    names = {} if model_fn is None else {_function_of(job): model_fn}
    if resumed is not None:
        for text in resumed.damaged:
            reporter.say(f"warning: {text}")
    if model_fn is not None and not is_importable(model_fn):
        reporter.say(_ONLY_HERE)
    request = RunRequest(
        job,
        root,
        job_id,
        scheduler,
        resumed=resumed,
        sinks=tuple(sinks),
        callbacks=tuple(callbacks),
        overwrite=overwrite,
        draws=curves,
        features=table.features if table else "",
    )
    if table and isinstance(reporter, LoggedProgress):
        reporter.target = table.target
    try:
        with handed_over(*own.values(), names=names):
            train(request, reporter)
    except CallbackFailed as failed:
        raise failed.error from None
    return Run(root, model_fn)


def _refuse_unused(given: Mapping[str, Any], forms: Mapping[str, bool]) -> None:
    """Raise an error if arguments of `fit` are set that it would ignore.

    Args:
        given: The arguments by name; `None` if they are not set.
        forms: For each key of `_UNUSED`, whether the call has this form.
    """
    for form, (names, message, hint) in _UNUSED.items():
        unused = [name for name in names if given[name] is not None]
        if forms[form] and unused:
            raise DistrainError(message, where={"given": ", ".join(unused)}, hint=hint)


def _table_job(
    rows: Any,
    arguments: Mapping[str, Any],
    progress: Progress,
    *,
    features: Mapping[str, Any] | str | Path | None,
    max_bad: float | None,
    **request: Any,
) -> "TableJob":
    """Prepare a table and fit a job to it; report the decisions and warnings.

    `arguments` are those of `make_user_choices`, and `request` has further fields of
    `TableRequest`.
    """
    progress.say("inferring the columns")  # before imports, which take a second
    from distrain.launch.tables import TableRequest, job_of_table, make_user_choices

    is_share = isinstance(max_bad, int | float) and not isinstance(max_bad, bool)
    if max_bad is not None and not (is_share and 0 <= max_bad <= 1):
        raise SpecError(f"max_bad is {max_bad!r}, not a share from 0 to 1", hint="Such as 0.05.")
    decided, valid_rows, test_rows = make_user_choices(**arguments)
    wanted = TableRequest(
        rows,
        choices=decided,
        valid_rows=valid_rows,
        test_rows=test_rows,
        features=features,
        max_bad=max_bad,
        **request,
    )
    table = job_of_table(wanted, progress.say)
    for decision in table.decisions:
        progress.say(decision)
    for warning in table.warnings:
        progress.say(f"warning: {warning}")
    return table


def _job(
    spec: Spec | None,
    overrides: Sequence[str],
    model_fn: MakeModel | None,
    options: Mapping[str, Any],
    run_dir: str | Path | None,
) -> JobSpec:
    from distrain.models.custom import name_of

    if isinstance(spec, str | Path) and is_named_as_table(str(spec)):
        from distrain.launch.tables import refuse_without_target

        refuse_without_target([str(spec)])
    if not isinstance(spec, JobSpec | Mapping | str | Path):
        what = "nothing" if spec is None else f"a {type(spec).__name__}"
        raise DistrainError(
            f"fit takes a job spec, a table with its target, or a run to resume, and got {what}",
            hint="Name the column of a table that is to be predicted: fit(table, target=COLUMN).",
        )
    document: object = spec
    if isinstance(spec, str | Path):
        document = read_document(Path(spec))
    elif isinstance(spec, JobSpec):
        document = spec.model_dump(mode="json", exclude_unset=True)
    if isinstance(document, Mapping):
        name = Path(run_dir or "").name
        document = {"name": name, **document} if re.match(JOB_NAME, name) else dict(document)
        if model_fn is not None:
            if document.get("model") is not None:
                raise SpecError(
                    "the spec has a section `model`, and model_fn is also given",
                    where={"model": document["model"], "model_fn": name_of(model_fn)},
                    hint="Leave one of them out: model_fn, or the section of the document.",
                )
            section = CustomSpec(function=name_of(model_fn), options=dict(options))
            document["model"] = section.model_dump(mode="json")
    return parse_spec(
        document, overrides, source=str(spec) if isinstance(spec, str | Path) else None
    )


def _plain(value: object) -> str | int | float:
    match value:
        case Path():
            return str(value)
        case Integral():
            return int(value)
        case Real():
            return float(value)
    raise SpecError(
        f"overrides hold a {type(value).__name__}, which a job spec cannot hold",
        hint="Use strings, paths, numbers, booleans, None, lists and mappings.",
    )


def _function_of(spec: JobSpec) -> str:
    if isinstance(spec.model, CustomSpec):
        return spec.model.function
    raise SpecError(
        f"model_fn is given, but the run's model is the built-in kind {spec.model.kind!r}",
        hint="Leave model_fn out.",
    )


def _read_summary(run_dir: Path) -> "Summary":
    values = read_summary(RunPaths(run_dir))
    if values is None:
        url = url_of(run_dir)
        raise InputError(
            "not a finished run" if url is None else "a run is read from a local folder",
            where={"path": url or str(run_dir)},
            hint="Give the directory of a run; it contains summary.json once the run has ended.",
        )
    return Summary(
        **{name: values[name] for name in Summary.__dataclass_fields__ if name in values}
    )
