"""`distrain tune`: searches for a better spec."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from distrain.cli.options import PATH, connection_options, json_option, overrides_option

if TYPE_CHECKING:
    from distrain.launch.tuning import SearchResult

_TRIALS, _QUICK = 20, 8


@click.command()
@click.argument("spec_file", metavar="SPEC.yaml", type=PATH)
@click.option(
    "--trials", type=click.IntRange(1), help=f"The total number of trials. Default: {_TRIALS}."
)
@click.option("--quick", is_flag=True, help=f"The same as --trials {_QUICK}.")
@click.option(
    "--over",
    "space",
    multiple=True,
    metavar="FIELD=VALUES",
    help="Search this field: LOW..HIGH, or A,B,C. Default: learning rate, batch size, widths, "
    "dropout.",
)
@overrides_option
@click.option("--run-dir", type=PATH, required=True, help="The folder of the search's runs.")
@click.option(
    "--test",
    metavar="DATA",
    multiple=True,
    help="Labelled rows that no trial uses, on which the spec's model and the best one are "
    "measured at the end; may be repeated.",
)
@connection_options("Run the trials on this Dask cluster instead of local ones.")
@json_option("Print the trials as JSON at the end.")
def command(
    spec_file: Path,
    trials: int | None,
    quick: bool,
    space: tuple[str, ...],
    overrides: tuple[str, ...],
    run_dir: Path,
    test: tuple[str, ...],
    scheduler: str | None,
) -> None:
    """Train SPEC.yaml with other values of some fields, and write the spec of the best trial.

    This is a hyperparameter search (a sweep). The first trial is the given spec, if its values are
    in the search space. Optuna chooses the values of the other trials. A trial is pruned
    (successive halving) if others were better after the same number of validations.

    Trials are compared by the best value of the metric checkpoint.keep_best. With
    evaluate.next_window and without keep_best, they are compared by the metric over all windows,
    each scored before the model is trained on it. With many trials on the same rows, the best
    result is partly luck; --test measures it on other rows.

    --over is LOW..HIGH for a range of numbers, or A,B,C for choices. Lists are separated by
    semicolons: --over 'model.hidden=[64];[256, 128]'.

    The same command continues a stopped search: finished trials are kept, and a killed trial
    resumes from its checkpoint. --trials may then be larger.

    \b
    Examples:
      distrain tune job.yaml --run-dir search --quick
      distrain tune job.yaml --run-dir search --trials 40 --over model.embedding_dim=8,16,32
      distrain tune job.yaml --run-dir search --over train.optimizer.lr=0.001..0.1
      distrain train search/best.yaml
    """
    from distrain.cli.models.models import check_data
    from distrain.cli.output import json_wanted, print_answer, print_remark, print_result
    from distrain.jobs.spec.load import load_spec
    from distrain.launch.tuning import Search

    if quick and trials is not None:
        raise click.UsageError(f"--quick is --trials {_QUICK}: leave one of them out.")
    check_data(test)
    spec = load_spec(spec_file, overrides)
    num_trials = _QUICK if quick else trials or _TRIALS
    search = Search(spec, run_dir, num_trials, space, scheduler)
    result = search.run(print_remark)
    tested = _tested(run_dir, result, test) if test and result.gain is not None else None
    if json_wanted():
        print_answer(**result.to_json(), **({} if tested is None else {"test": tested}))
        return
    for row in result.trials:
        value = "" if row["value"] is None else f"{row['value']:.5f}"
        values = ", ".join(f"{name}={one}" for name, one in row["values"].items())
        print_result(f"{row['number'] + 1:>4}  {row['state']:9} {value:>9}  {values}")
    if result.best is None:
        return
    if result.given is None:
        print_result("the given spec was not tried: its values are outside the search space")
    else:
        judges = "windows before they are trained" if search.uses_windows else "validations"
        _print_gain(result.metric, judges, result.given, result.best)
    if tested is not None:
        _print_gain(result.metric, "test rows", tested["given"], tested["best"])
    best = result.trials[0]["number"] + 1
    print_result(f"the best is trial {best}, written to {run_dir / 'best.yaml'}")


def _print_gain(metric: str, rows: str, given: float | None, best: float | None) -> None:
    from distrain.cli.output import print_result

    name = metric.replace("_", " ")
    if given is None or best is None:
        print_result(f"{name} of {rows}: unknown for these rows")
        return
    print_result(f"{name} of {rows}: {given:.5f} as given, {best:.5f} ({best - given:+.5f}) best")


def _tested(run_dir: Path, result: "SearchResult", test: tuple[str, ...]) -> dict[str, Any]:
    """Return the metric on the rows `test` of the first trial (`given`) and the best (`best`)."""
    from distrain.cli.models.models import find_model
    from distrain.predict.evaluation import evaluate_saved
    from distrain.predict.load_model import open_model
    from distrain.predict.logits import ScorerInProcess
    from distrain.predict.raw_rows import rows_for_model

    values = {}
    for name, number in (("given", 0), ("best", result.trials[0]["number"])):
        folder = find_model(run_dir / "trials" / f"{number:04}")
        saved = open_model(folder)
        with rows_for_model(folder, saved, test) as (dataset, *_):
            report = evaluate_saved(ScorerInProcess(saved, dataset))
        target, _, metric = result.metric.rpartition(".")
        of_target = report.targets[target] if target else vars(report)
        values[name] = of_target.get(metric)
    return values
