"""`distrain tune`: a search for a better spec."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from distrain.cli.options import PATH, connection_options, json_option, overrides_option

if TYPE_CHECKING:
    from distrain.launch.tuning import Found

_TRIALS, _QUICK = 20, 8


@click.command()
@click.argument("spec_file", metavar="SPEC.yaml", type=PATH)
@click.option("--trials", type=click.IntRange(1), help=f"Runs in all. Default: {_TRIALS}.")
@click.option("--quick", is_flag=True, help=f"The same as --trials {_QUICK}.")
@click.option(
    "--over",
    "space",
    multiple=True,
    metavar="FIELD=VALUES",
    help="Search this field: LOW..HIGH, or A,B,C. Default: rate, rows of a step, widths, dropout.",
)
@overrides_option
@click.option("--run-dir", type=PATH, required=True, help="The folder of the search's runs.")
@click.option(
    "--test",
    metavar="DATA",
    multiple=True,
    help="Labelled rows that no trial sees, on which the spec's model and the best one are "
    "measured at the end; may be repeated.",
)
@connection_options("Run the trials on this Dask cluster, not on local ones.")
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
    as_json: bool,
) -> None:
    """Train a spec with other values, and write the best as a spec.

    The first trial is the spec as it is, where its values lie in the space. Optuna chooses the
    values of the others, and ends one early (successive halving) where others were better after as
    many validations. What is compared is the best value of checkpoint.keep_best; with
    evaluate.next_window and without keep_best, the metric of all windows before they were trained.
    Of so many values on the same rows the best is partly luck; --test says what is left on others.

    The same command goes on with a search that was stopped: trials that ended stay, one that was
    killed goes on from its checkpoint. `--trials` may be larger then.

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
    wanted = _QUICK if quick else trials or _TRIALS
    search = Search(spec, run_dir, wanted, space, scheduler)
    found = search.run(print_remark)
    tested = _tested(run_dir, found, test) if test and found.gain is not None else None
    if json_wanted():
        print_answer(**found.to_json(), **({} if tested is None else {"test": tested}))
        return
    for row in found.trials:
        value = "" if row["value"] is None else f"{row['value']:.5f}"
        values = ", ".join(f"{name}={one}" for name, one in row["values"].items())
        print_result(f"{row['number'] + 1:>4}  {row['state']:9} {value:>9}  {values}")
    if found.best is None:
        return
    if found.given is None:
        print_result("the spec as it is was not tried: its values lie outside of the space")
    else:
        judges = "windows before they are trained" if search.of_windows else "validations"
        _print_gain(found.metric, judges, found.given, found.best)
    if tested is not None:
        _print_gain(found.metric, "test rows", tested["given"], tested["best"])
    best = found.trials[0]["number"] + 1
    print_result(f"the best is trial {best}, written to {run_dir / 'best.yaml'}")


def _print_gain(metric: str, rows: str, given: float | None, best: float | None) -> None:
    from distrain.cli.output import print_result

    name = metric.replace("_", " ")
    if given is None or best is None:
        print_result(f"{name} of {rows}: not known of these rows")
        return
    print_result(f"{name} of {rows}: {given:.5f} as given, {best:.5f} ({best - given:+.5f}) best")


def _tested(run_dir: Path, found: "Found", test: tuple[str, ...]) -> dict[str, Any]:
    """The metric of test rows, of the spec as it is (the first trial) and of the best."""
    from distrain.cli.models.models import find_model
    from distrain.predict.evaluation import evaluate_saved
    from distrain.predict.logits import ScorerInProcess
    from distrain.predict.raw import labelled_rows
    from distrain.train.saving.checkpoint_model import open_model

    values = {}
    for name, number in (("given", 0), ("best", found.trials[0]["number"])):
        folder = find_model(run_dir / "trials" / f"{number:04}")
        saved = open_model(folder)
        with labelled_rows(folder, saved, test) as (dataset, *_):
            report = evaluate_saved(ScorerInProcess(saved, dataset))
        target, _, metric = found.metric.rpartition(".")
        of_target = report.targets[target] if target else vars(report)
        values[name] = of_target.get(metric)
    return values
