"""Training from Python: `fit`, the `Run` that it returns."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distrain.errors import DistrainError, InputError, SpecError
from distrain.formatting import count, main_metrics, number
from distrain.jobs.run_paths import PREPARED, RunPaths, new_job_id
from distrain.jobs.spec.job import JOB_NAME, JobSpec
from distrain.jobs.spec.load import parse_spec, read_document
from distrain.jobs.spec.models.kinds import CustomSpec
from distrain.launch.notebook import progress_here
from distrain.launch.reporting import Progress
from distrain.launch.resuming import find_run
from distrain.launch.run import CallbackFailed, RunRequest, train
from distrain.runs.attempts import read_records
from distrain.runs.run_file import read_run_and_spec, read_summary
from distrain.runs.summary import Summary

if TYPE_CHECKING:
    import numpy as np
    import pandas  # type: ignore[import-untyped]
    from distributed import Client
    from distributed.deploy import Cluster

    from distrain.jobs.view import Record
    from distrain.launch.tables import TableJob
    from distrain.metrics.custom import Metric
    from distrain.metrics.report import BinaryReport
    from distrain.models.blueprint import Blueprint
    from distrain.models.export import Form
    from distrain.models.saved import SavedModel
    from distrain.predict.importance import Importance
    from distrain.prep.features.inference.asked import Task
    from distrain.runs.sinks.base import Sink

_ONLY_HERE = """\
warning: model_fn is defined in this process alone: its run can be evaluated from here, or with
distrain.Run(run_dir, model_fn=...). The commands evaluate, predict and export cannot make its
model: for these, move model_fn to a module of a package that DISTRAIN_MODEL_PACKAGES names"""

MakeModel = Callable[..., "Blueprint"]
Spec = JobSpec | Mapping[str, Any] | str | Path


class Run:
    """A run that has ended, by its directory.

    Args:
        run_dir: The run directory.
        model_fn: The function that made the model, where this process cannot import it by the name
            that the run's spec has; it must make the same model. `None` for a named model.

    Attributes:
        summary: What `summary.json` held when the run was opened. `records` and `history` are read
            anew: where the run is resumed, take the `Run` that `fit` returns.

    Raises:
        InputError: The directory holds no run that has ended, or `model_fn` is not for its model.
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
        if summary.auc is None and (of_targets := main_metrics(summary.targets)):
            score = " ".join(of_targets[0])
        scores = f", {score} on {summary.scored_on}" if summary.scored_on else ""
        return f"<Run {self.run_dir}: {summary.state}, {count(summary.steps)} steps{scores}>"

    @property
    def records(self) -> "list[Record]":
        """The run's records: one for each report of training and each validation."""
        return read_records(RunPaths(self.run_dir))

    @property
    def history(self) -> "pandas.DataFrame":
        """The records as a table: a row for each, with those of its figures that are one number."""
        import pandas

        rows = [record.figures() for record in self.records]
        return pandas.DataFrame(rows).dropna(axis="columns", how="all")

    def load_model(self) -> "SavedModel":
        """The trained model, on the CPU; see `distrain.models.load_model`."""
        from distrain.models.custom import handed_over
        from distrain.models.saved import load_model

        with handed_over(names=self._names):
            return load_model(RunPaths(self.run_dir).model)

    def predict(
        self, rows: Any, *, keep: Sequence[str] = (), raw: bool | None = None
    ) -> "pandas.DataFrame":
        """The scores of rows, in their order; those of a table need no target.

        Those of a DataFrame have its index, so that `rows.join(run.predict(rows))` puts each score
        beside its row. Rows in memory are scored in this process; model and vocabularies stay open.

        Args:
            rows: A DataFrame of pandas or polars, an Arrow table, a mapping of arrays, a list of
                dictionaries, or files: as the run's data were before they were prepared, or
                prepared by the run's own workflow. Texts spell numbers and times as in a text file.
            keep: Columns to have beside the scores.
            raw: Whether rows are not prepared; `None` looks at their columns.

        Returns:
            For each row logit and probability, of several targets `probability_TARGET` of each.
        """
        import pandas

        from distrain.models.custom import handed_over
        from distrain.predict.in_memory import score_rows
        from distrain.predict.raw import RawOptions

        model = RunPaths(self.run_dir).model
        with handed_over(names=self._names):
            scores = score_rows(model, rows, keep=keep, raw=RawOptions(raw)).to_pandas()
        if isinstance(rows, pandas.DataFrame):
            # Prepared rows have no numbers but a column of that name, and are all there.
            numbers = None if "row_number" in keep else scores.get("row_number")
            scores.index = rows.index if numbers is None else rows.index.take(numbers)
        return scores

    def predict_proba(self, rows: Any, *, raw: bool | None = None) -> "np.ndarray[Any, Any]":
        """The probabilities of the classes of the one target; arguments as of `predict`.

        Returns:
            `[rows, classes]`, float32; of a target of two values that of 0, then that of 1.

        Raises:
            InputError: The model has several targets, or one that is a number.
        """
        import numpy as np

        scores = self.predict(rows, raw=raw)
        if "probability" not in scores:
            raise InputError(
                "the model has no one target of classes",
                where={"scores": ", ".join(scores.columns)},
                hint="Take the columns of `predict`.",
            )
        found = np.array(scores["probability"].tolist(), np.float32)
        return found if found.ndim == 2 else np.column_stack([1 - found, found])

    def importance(self, rows: Any, *, seed: int = 0) -> "Importance":
        """How much worse the first target's metric is with each column of some rows shuffled.

        Args:
            rows: Labelled rows, as for `evaluate`.
            seed: Of the shuffling.
        """
        from distrain.models.custom import handed_over
        from distrain.predict.in_memory import importance_of_rows

        with handed_over(names=self._names):
            return importance_of_rows(RunPaths(self.run_dir).model, rows, seed)

    def report(self, out: str | Path | None = None) -> Path:
        """Write the run's report, one HTML page, and return its path; `None`: in the run."""
        from distrain.runs.report.run_page import write_report

        page = RunPaths(self.run_dir).report if out is None else Path(out)
        write_report(self.run_dir, page)
        return page

    def export(self, out: str | Path, *, to: "Form" = "torch", with_workflow: bool = False) -> Path:
        """Write the model to a folder in a form that needs no distrain, and return the folder.

        Args:
            to: `"torch"` or `"onnx"`.
            with_workflow: Whether the folder scores raw rows.
        """
        from distrain.predict.serving.folder import export_folder

        folder, saved = RunPaths(self.run_dir).model, self.load_model()
        export_folder(Path(out), folder, saved, to, with_workflow=with_workflow)
        return Path(out)

    def evaluate(self, rows: Any, *, raw: bool | None = None) -> "BinaryReport":
        """The metrics of rows with labels, scored in this process; arguments as of `predict`.

        Metrics of your own are of validations alone.
        """
        from distrain.models.custom import handed_over
        from distrain.predict.in_memory import evaluate_rows
        from distrain.predict.raw import RawOptions

        with handed_over(names=self._names):
            return evaluate_rows(RunPaths(self.run_dir).model, rows, raw=RawOptions(raw))


def load(run_dir: str | Path, model_fn: MakeModel | None = None) -> Run:
    """Open a run that has ended, to score rows: `distrain.load("runs/first").predict(rows)`.

    Arguments and errors are those of `Run`.
    """
    return Run(run_dir, model_fn)


def fit(
    data: Any = None,
    /,
    *,
    target: str | Sequence[str] | None = None,
    task: "Task | None" = None,
    valid: Any = None,
    time: str | None = None,
    weight: str | None = None,
    model: Mapping[str, Any] | str | None = None,
    features: Mapping[str, Any] | str | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    model_fn: MakeModel | None = None,
    options: Mapping[str, Any] | None = None,
    run_dir: str | Path | None = None,
    overwrite: bool = False,
    resume: "Run | str | Path | None" = None,
    scheduler: "str | Client | Cluster | None" = None,
    progress: Progress | None = None,
    callbacks: "Sequence[Callable[[Record], object]]" = (),
    metrics: "Mapping[str, type[Metric]] | None" = None,
    sinks: "Sequence[str | Sink]" = (),
    curves: bool = True,
) -> Run:
    """Train a model on a table, or as a job spec says, and wait for it.

    `fit(table, target="clicked")` infers what the columns are, prepares the rows, fits a job to
    them and trains it. It reports these decisions, and the run directory holds them as
    `features.yaml` and `job.yaml`. Prepared rows are kept in `.prepared` beside the run directory
    and used again for the same rows and features. `fit(spec)` trains on rows that are prepared.

    Args:
        data: With `target` or `features` a table: a DataFrame of pandas, polars or Dask, an Arrow
            table, anything else with Arrow's C stream, a mapping of arrays, or files, folders and
            globs. Else a job: a spec, a document as in its YAML file, or the path of that file;
            where it has no name, the job has that of `run_dir`. `None` with `resume`.
        target: The column to predict, or several.
        task: `"binary"`, `"regression"` or `"multiclass"`; `None`: by the target's values.
        valid: The table's validation rows: a share such as 0.1; a number of last rows; a section
            `split` of a features document, such as `{"by": "hash", "column": "user", "share":
            0.1}`; another table; `False` for none. `None`: about a tenth, the latest rows where
            there are times.
        time: A column of times that orders the table: the latest rows are for validation.
        weight: The column of the rows' weights.
        model: A model by name, or a section `model`; `None`: one that suits the table.
        features: A features document, or its file, instead of all that is inferred.
        overrides: Fields of the spec to be set, by their paths: `{"train.optimizer.lr": 0.01}`.
        model_fn: Makes the model, as `model_fn(schema, **options)`, in place of a section `model`,
            which the document or file then must not have. With the inline backend it may be any
            function. Elsewhere the workers import it by its module's name, which their operator
            must have allowed (`DISTRAIN_MODEL_PACKAGES`). With `resume` it must make the same model
            as before; `None` then takes that of the `Run`.
        options: Keyword arguments for `model_fn`, JSON values; a resumed run has its own.
        run_dir: Where the run's files go; every worker must see it. `None` for `runs/JOB`.
        overwrite: Whether a run in `run_dir` may be replaced; it is removed when the new job has
            passed its checks.
        resume: A run, or its directory, to go on with from its newest checkpoint, with its spec.
        scheduler: A Dask cluster: a client, a cluster, or its scheduler's address. It stays when
            the job ends. `None`: a new one on this machine for a job; a table is prepared and
            trained on in this process.
        progress: Reports how the run goes; `None` for a bar and a chart in a notebook, lines on a
            terminal, and the log `distrain` elsewhere.
        callbacks: Called in this process with each record of training and validation as it comes.
            An exception ends the job and comes out of `fit`.
        metrics: Metrics of your own for validations, by the names that records have for them:
            subclasses of `distrain.metrics.Metric`, which workers import as they do `model_fn`.
        sinks: Where the run's records go as well: `"tensorboard"`, `"mlflow:URI"`, or sinks of your
            own (`distrain.runs.sinks.base.Sink`).
        curves: Whether to draw `curves.png` at the end, which takes a second or two.

    Raises:
        SpecError: The spec cannot be used.
        DistrainError: The inputs cannot be used, or the job ended badly.
    """
    from distrain.models.custom import handed_over, is_importable, name_of

    own = dict(metrics or {})
    fields = dict(overrides or {})
    if own:
        fields["evaluate.metrics"] = {name: name_of(metric) for name, metric in own.items()}
    words = tuple(f"{path}={json.dumps(value, default=_plain)}" for path, value in fields.items())
    reporter = progress or progress_here()
    asked = (target, task, valid, time, weight, model)
    table = None
    if resume is not None:
        if data is not None or run_dir is not None or overwrite or options:
            raise DistrainError(
                "fit(resume=) uses the run's own spec and directory",
                hint="Leave out spec, options, run_dir and overwrite; change fields with "
                "overrides.",
            )
        if isinstance(resume, Run):
            model_fn = model_fn or resume.model_fn
            resume = resume.run_dir
        root = Path(resume).expanduser()
        job_id, job, resumed = find_run(root, words)
    else:
        if target is not None or features is not None:
            place = Path("runs") if run_dir is None else Path(run_dir).expanduser().parent
            table = _table_job(data, asked, features, place / PREPARED, scheduler, reporter)
            data = table.document
            if model_fn is not None:
                del data["model"]
        elif asked != (None,) * len(asked):
            raise DistrainError(
                "task, valid, time, weight and model are of a table, and no target is named",
                hint="Name the column to predict: fit(table, target=COLUMN).",
            )
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
        job, root, job_id, scheduler, ":0", resumed, tuple(sinks), tuple(callbacks), overwrite
    )
    request = replace(request, draws=curves, features=table.features if table else "")
    try:
        with handed_over(*own.values(), names=names):
            train(request, reporter)
    except CallbackFailed as failed:
        raise failed.error from None
    return Run(root, model_fn)


def _table_job(
    rows: Any,
    asked: tuple[Any, ...],
    features: Mapping[str, Any] | str | Path | None,
    place: Path,
    scheduler: Any,
    progress: Progress,
) -> "TableJob":
    from distrain.launch.tables import TableRequest, asked_of, job_of_table

    *columns, model = asked
    if features is not None and columns != [None] * len(columns):
        raise DistrainError(
            "a features document says which columns are target, weight and validation",
            hint="Leave out target, task, valid, time and weight, or features.",
        )
    decided, valid_rows = asked_of(*columns)
    request = TableRequest(rows, place, decided, valid_rows, features, model, scheduler)
    table = job_of_table(request, progress.say)
    for decision in table.decisions:
        progress.say(decision)
    return table


def _job(
    spec: Spec | None,
    overrides: Sequence[str],
    model_fn: MakeModel | None,
    options: Mapping[str, Any],
    run_dir: str | Path | None,
) -> JobSpec:
    from distrain.models.custom import name_of

    if not isinstance(spec, JobSpec | Mapping | str | Path):
        what = "nothing" if spec is None else f"a {type(spec).__name__}"
        raise DistrainError(
            f"fit takes a job spec, a table with its target, or a run to resume, and got {what}",
            hint="Name the column of a table that is to be predicted: fit(table, target=COLUMN).",
        )
    if options and model_fn is None:
        raise DistrainError(
            "options are for model_fn, which is not given",
            hint="What a model of the spec takes stands in its section `model`.",
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
                    "the spec has a section `model`, and model_fn is given, too",
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
        f"overrides hold a {type(value).__name__}, which no job spec holds",
        hint="Give texts, paths, numbers, truth values, None, lists and mappings.",
    )


def _function_of(spec: JobSpec) -> str:
    if isinstance(spec.model, CustomSpec):
        return spec.model.function
    raise SpecError(
        f"model_fn is given, and the run's model is no function's but of kind {spec.model.kind!r}",
        hint="Leave model_fn out.",
    )


def _read_summary(run_dir: Path) -> "Summary":
    values = read_summary(RunPaths(run_dir))
    if values is None:
        raise InputError(
            "no run that has ended",
            where={"path": str(run_dir)},
            hint="Name the directory of a run; it holds summary.json when the run has ended.",
        )
    return Summary(
        **{name: values[name] for name in Summary.__dataclass_fields__ if name in values}
    )
