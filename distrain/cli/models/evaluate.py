"""`distrain evaluate`: computes a saved model's metrics on labelled rows."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from distrain.cli.data.prepared import left_out_of, warn_of_scored
from distrain.cli.models.models import (
    check_data,
    checkpoint_option,
    find_model,
    raw_options,
    scoring_options,
)
from distrain.cli.options import (
    PLACE,
    POSITIVE,
    connection_options,
    given_options,
    json_option,
)
from distrain.cli.output import (
    json_wanted,
    print_facts,
    print_json,
    print_remark,
    print_result,
    print_warning,
    progress_console,
)
from distrain.cli.progress_bars import WorkProgress
from distrain.errors import InputError
from distrain.formatting import entropy, join_names, target_name
from distrain.jobs.target_names import own_name, with_own_name

if TYPE_CHECKING:
    from distrain.loader.dataset import Dataset
    from distrain.metrics.report import BinaryReport
    from distrain.models.saved_model import SavedModel
    from distrain.predict.logits import Scorer, ScorerInProcess
    from distrain.predict.raw_rows import RawOptions
    from distrain.prep.request import PrepResult


@dataclass(frozen=True)
class ScoringBackend:
    """Scores rows in this process, on a local cluster, or on an existing cluster."""

    scheduler: str | None  # the address of an existing Dask cluster
    # the number of workers of a local cluster; if this and `scheduler` are `None`, rows are scored
    # in this process
    workers: int | None
    batch_rows: int | None  # rows scored at once; `None`: automatic

    def check_raw(self) -> None:
        """Raise `InputError` if there is a `scheduler`: its workers cannot read files made here."""
        if self.scheduler is not None:
            raise InputError(
                "raw rows are prepared temporarily here: --scheduler cannot use them",
                hint="Prepare them with `distrain prep RAW --workflow W --out DIR`, and evaluate "
                "DIR/train.",
            )

    @contextmanager
    def scorer(
        self, folder: Path | str, saved: "SavedModel", dataset: "Dataset"
    ) -> "Iterator[Scorer]":
        """Yield a scorer of `dataset` with the model in `folder`, here or on a cluster.

        It scores in this process without `workers` and `scheduler`, otherwise on that scheduler's
        cluster, or on a local cluster of `workers` processes, which ends with the block.
        """
        from distrain.predict.logits import ScorerInProcess, ScorerOnCluster
        from distrain.storage.urls import is_remote
        from distrain.workers.local import device_of_workers
        from distrain.workers.open_cluster import ClusterRequest, open_cluster

        device = "auto" if self.scheduler else "cpu"
        if self.scheduler is None and self.workers is not None:
            device = device_of_workers(self.workers)
        if self.scheduler is None and self.workers is None:
            yield ScorerInProcess(saved, dataset, self.batch_rows)
            return
        request = ClusterRequest(self.scheduler, self.workers or 1, device=device)
        with open_cluster(request) as client:
            where = folder if is_remote(folder) else Path(folder).absolute()
            yield ScorerOnCluster(client, str(where), dataset, self.batch_rows, device)


@click.command()
@scoring_options
@click.option(
    "--threads", type=POSITIVE, default=1, help="Number of torch's CPU threads in this process."
)
@click.option(
    "--workers",
    type=POSITIVE,
    help="Score on this number of local workers. Default: on the CPU in this process.",
)
@connection_options("Score on the workers of this Dask cluster.")
@click.option(
    "--group",
    metavar="COLUMN",
    help="Also print AUC, log loss and calibration within the rows of each value of COLUMN, such "
    "as a user id, and the mean of the AUCs, weighted by rows or their weights.",
)
@click.option(
    "--drift",
    "train",
    type=PLACE,
    metavar="TRAIN",
    help="Also print the drift of each column from the rows that the model was trained on, raw or "
    "prepared: the population stability index. Warns about columns above 0.25. Raw rows are all "
    "prepared first, in the folder for temporary files.",
)
@click.option(
    "--importance",
    is_flag=True,
    help="Also print how much worse the metric of the first target becomes when one column is "
    "shuffled within each batch; all rows are scored once for each column.",
)
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=0,
    help="With --importance: the seed of the shuffling.",
)
@click.option(
    "--max-auc-bound",
    type=click.FloatRange(min=0),
    default=1e-3,
    help="The largest error of AUC and average precision due to binned logits. If it is "
    "exceeded, the rows are scored again and sorted by score.",
)
@click.option(
    "--items",
    type=PLACE,
    help="For retrieval models (`two_tower`, `sasrec_retrieval`): rank all these items (prepared "
    "parquet, one row each) for each row of DATA with label 1, whose item is the relevant one.",
)
@click.option(
    "--top", type=POSITIVE, default=10, help="With --items: the number of items per user."
)
@click.option(
    "--seen",
    metavar="COLUMN",
    multiple=True,
    help="With --items: exclude the items in this list column; may be repeated.",
)
@raw_options
@checkpoint_option
@json_option("Print one JSON object.")
def command(
    model: Path,
    data: tuple[str, ...],
    batch_size: int | None,
    threads: int,
    workers: int | None,
    scheduler: str | None,
    group: str | None,
    train: Path | str | None,
    importance: bool,
    seed: int,
    max_auc_bound: float,
    items: Path | str | None,
    top: int,
    seen: tuple[str, ...],
    is_raw: bool | None,
    bad_lines: str,
    max_bad: float,
    checkpoint: str | None,
) -> None:
    """Score the labelled rows of DATA with a saved model and print its metrics.

    RUN_OR_MODEL is a run folder, its model folder, or the folder of one checkpoint. DATA are
    prepared parquet files, folders or globs, or raw rows; raw rows are first prepared here by the
    model's own workflow. Rows are scored in pieces of about a million.

    Normalised entropy is the log loss divided by the log loss of predicting the mean label: a model
    with 1 or more is useless. Calibration is the sum of predictions over the sum of labels: 1 is
    best. A bound is the largest error of a metric that is computed from binned scores; it is not a
    sampling error.

    \b
    Examples:
      distrain evaluate runs/dlrm-20260301-123000-ab12 criteo/valid
      distrain evaluate runs/NAME/model 'criteo/valid/*.parquet' --json
      distrain evaluate runs/NAME orders-of-may.csv --group sold_on --drift orders.csv
      distrain evaluate runs/NAME criteo/valid --group C1
      distrain evaluate runs/NAME clicks/valid --drift clicks/train
      distrain evaluate runs/NAME criteo/valid --checkpoint 2000
      distrain evaluate runs/NAME criteo/valid --importance
      distrain evaluate runs/NAME shop/valid --items shop/items --seen history_item
      distrain evaluate runs/NAME criteo/valid --workers 8
    """
    _check_options(click.get_current_context())
    folder = find_model(model, checkpoint)
    check_data([*data, *(str(place) for place in (items, train) if place is not None)])
    print_remark("loading the model")  # before imports, which take seconds

    import torch

    from distrain.predict.drift import column_drift
    from distrain.predict.evaluation import evaluate_groups, evaluate_saved, type_of_group
    from distrain.predict.load_model import open_model
    from distrain.predict.logits import ScorerInProcess
    from distrain.predict.raw_rows import RawOptions, rows_for_model

    torch.set_num_threads(threads)
    saved, place = open_model(folder), ScoringBackend(scheduler, workers, batch_size)
    with ExitStack() as stack:
        progress = stack.enter_context(WorkProgress(progress_console()))
        raw = RawOptions(is_raw, bad_lines == "skip", max_bad)
        dataset, group_column, prepared = stack.enter_context(
            rows_for_model(folder, saved, data, raw, place.check_raw, progress.show_prep, group)
        )
        if group_column is not None:
            type_of_group(dataset, group_column)  # its errors, before rows are scored
        _warn_of_seen(folder, saved, dataset, prepared)
        before = (
            None if train is None else _training_rows(stack, folder, saved, train, raw, progress)
        )
        scorer = stack.enter_context(place.scorer(folder, saved, dataset))

        def show(phase: str, done: int, total: int) -> None:
            progress.show(phase, done, total, done, "rows")

        if items is not None:
            results = _retrieval_metrics(scorer, saved, items, top, seen)
        else:
            report = evaluate_saved(scorer, max_auc_bound, show)
            results = {name: value for name, value in asdict(report).items() if value != {}}
        if importance and isinstance(scorer, ScorerInProcess):
            results["importance"] = _importance(folder, scorer, report, seed, max_auc_bound, show)
        if group_column is not None:
            groups = evaluate_groups(scorer, group_column, show)
            results |= groups.to_json() | {"group": group}
        if before is not None:
            results["drift"] = column_drift(before, dataset)
    if prepared is not None:
        print_facts(left_out_of(prepared), 29)
        warn_of_scored(prepared)
    if before is not None:
        _print_drift(results["drift"], [column.name for column in before.columns])
    if json_wanted():
        of_rows = {} if prepared is None else prepared.to_json()
        dropped = {"bad_lines", "rows_without_label"} & of_rows.keys()
        print_json(results | {key: of_rows[key] for key in sorted(dropped)})
        return
    results["targets"] = with_own_name(results.get("targets"), own_name(Path(folder)))
    _print_results(results)


def _training_rows(
    stack: ExitStack,
    folder: Path | str,
    saved: "SavedModel",
    train: Path | str,
    raw: "RawOptions",
    progress: WorkProgress,
) -> "Dataset":
    """Open the rows of `--drift`, to which DATA is compared; they are closed with the stack.

    `raw` has the options for raw rows, the same as for DATA. `train` are the rows' files, and
    `saved` the model, whose workflow prepares raw rows.
    """
    from distrain.predict.raw_rows import rows_for_model

    raw = replace(raw, is_raw=None)  # --raw and --prepared are about DATA
    show = partial(progress.show_prep, rows="training rows: ")
    inputs = (str(train),)
    opened = rows_for_model(folder, saved, inputs, raw, on_prepare=show, labeled=False)
    dataset, *_ = stack.enter_context(opened)
    return dataset


def _retrieval_metrics(
    scorer: "Scorer", saved: "SavedModel", items: Path | str, top: int, seen: tuple[str, ...]
) -> dict[str, Any]:
    from distrain.predict.retrieval import evaluate_retrieval, table_of_items

    report = asdict(evaluate_retrieval(scorer, table_of_items(saved, items), top, seen))
    return {"rows" if name == "users" else name: value for name, value in report.items()}


def _importance(
    folder: Path | str,
    scorer: "ScorerInProcess",
    report: "BinaryReport",
    seed: int,
    max_auc_bound: float,
    show: Callable[[str, int, int], None],
) -> dict[str, Any]:
    from distrain.predict.importance import column_importance
    from distrain.predict.raw_rows import sources_of

    sources = sources_of(folder, scorer.saved)
    found = column_importance(scorer, report, sources, seed, max_auc_bound, show)
    return asdict(found) | {"seed": seed}


def _warn_of_seen(
    folder: Path | str, saved: "SavedModel", dataset: "Dataset", prepared: "PrepResult | None"
) -> None:
    from distrain.predict.evaluation import has_seen
    from distrain.predict.raw_rows import TRAINED_ON, has_trained_on

    if prepared is not None and has_trained_on(folder, saved, prepared.inputs):
        print_warning(f"warning: {TRAINED_ON}")
    if has_seen(saved, dataset):
        print_warning(
            "warning: the model's refit trained on these rows, so its metrics are too good; "
            "--checkpoint best evaluates the model before the refit"
        )


def _check_options(context: click.Context) -> None:
    """Raise an error if options contradict each other, or need another option."""
    values = context.params
    for name, needed in (("seed", "importance"), ("top", "items"), ("seen", "items")):
        if given_options(context, [name]) and not values[needed]:
            raise click.UsageError(f"--{name} is for --{needed}.")
    if values["items"] and values["group"]:
        raise InputError("--items cannot be combined with --group")
    elsewhere = [f"--{name}" for name in ("items", "workers", "scheduler") if values[name]]
    if values["importance"] and elsewhere:
        raise InputError(
            f"--importance is measured in this process, without {' and '.join(elsewhere)}",
            hint="Leave one of them out.",
        )


def _print_drift(drift: "dict[str, float]", columns: list[str]) -> None:
    from distrain.predict.drift import DRIFTED

    if skipped := [name for name in columns if name not in drift]:
        print_remark(
            f"--drift skips target means, which differ for training rows: {join_names(skipped, 10)}"
        )
    names = [name for name, index in drift.items() if index > DRIFTED]
    if names:
        print_warning(
            "warning: the distribution of columns has changed since training: "
            f"{join_names(names, 10)} (population stability index above {DRIFTED}); train with "
            "newer rows, or check their source"
        )


def _print_results(results: "dict[str, Any]") -> None:
    targets, importance = results.pop("targets", {}), results.pop("importance", None)
    largest = results.pop("largest_groups", [])
    drift = results.pop("drift", {})
    if results.get("log_loss") is None and targets:  # no binary target
        results = {"rows": results["rows"]}
    bounds = ("auc_bound", "average_precision_bound") if results.get("auc") is not None else ()
    for name, value in results.items():
        text = entropy(value) if name == "normalised_entropy" else _shown(value)
        text += " (binning error, not sampling error)" if name in bounds else ""
        print_result(f"{name.replace('_', ' '):28} {text}")
    for target, metrics in targets.items():
        print_result(f"\n{target_name(target)}:")
        for name, value in metrics.items():
            print_result(f"  {name.replace('_', ' '):26} {_shown(value)}")
    if importance:
        print_result(f"\nhow much worse {importance['metric']} becomes when a column is shuffled:")
        for column, loss in importance["loss"].items():
            print_result(f"  {column:26} {loss:+.6f}")
    if drift:
        print_result("\ndrift of columns since training (population stability index):")
        for column, index in drift.items():
            print_result(f"  {column:26} {index:.4f}")
    if largest:
        print_result(f"\nthe largest groups of {results['group']}:")
    for row in largest:
        rows, auc, loss = (_shown(row[name]) for name in ("rows", "auc", "log_loss"))
        value = "(missing)" if row["value"] is None else row["value"]
        figures = f"AUC {auc}  log loss {loss}  calibration {_shown(row['calibration'])}"
        print_result(f"  {value!s:26} {rows:>14} rows  {figures}")


def _shown(value: object) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.6g}" if isinstance(value, float) else "-" if value is None else str(value)
