"""`distrain tune`: searches for a better spec."""

from pathlib import Path

import click

from distrain.cli.options import PATH, connection_options, json_option, overrides_option

_TRIALS, _QUICK = 20, 8


@click.command()
@click.argument("spec_file", metavar="SPEC.yaml", type=PATH)
@click.option(
    "--trials", type=click.IntRange(1), help=f"The total number of trials. Default: {_TRIALS}."
)
@click.option("--quick", is_flag=True, help=f"The same as --trials {_QUICK}.")
@click.option(
    "--search",
    "space",
    multiple=True,
    metavar="FIELD=VALUES",
    help="Search this field: LOW..HIGH, or A,B,C. Default: learning rate, batch size, widths, "
    "dropout.",
)
@overrides_option
@click.option("--run-dir", type=PATH, required=True, help="The folder of the search's runs.")
@connection_options("Run the trials on this Dask cluster instead of local ones.")
@json_option("Print the trials as JSON at the end.")
def command(
    spec_file: Path,
    trials: int | None,
    quick: bool,
    space: tuple[str, ...],
    overrides: tuple[str, ...],
    run_dir: Path,
    scheduler: str | None,
) -> None:
    """Train SPEC.yaml with other values of some fields, and write the spec of the best trial.

    This is a hyperparameter search (a sweep). The first trial is the given spec, if its values are
    in the search space. Optuna chooses the values of the other trials. A trial is pruned
    (successive halving) if others were better after the same number of validations.

    Trials are compared by the best value of the metric checkpoint.keep_best. With
    evaluate.next_window and without keep_best, they are compared by the metric over all windows,
    each scored before the model is trained on it. With many trials on the same rows, the best
    result is partly luck: to measure it, pass the trial's folder and other rows to `distrain
    evaluate`.

    --search is LOW..HIGH for a range of numbers, or A,B,C for choices. Lists are separated by
    semicolons: --search 'model.hidden=[64];[256, 128]'.

    The same command continues a stopped search: finished trials are kept, and a killed trial
    resumes from its checkpoint. --trials may then be larger.

    \b
    Examples:
      distrain tune job.yaml --run-dir search --quick
      distrain tune job.yaml --run-dir search --trials 40 --search model.embedding_dim=8,16,32
      distrain tune job.yaml --run-dir search --search train.optimizer.lr=0.001..0.1
      distrain evaluate search/trials/0003 clicks/test
      distrain train search/best.yaml
    """
    from distrain.cli.output import print_answer, print_remark, print_result
    from distrain.jobs.spec.load import load_spec
    from distrain.launch.tuning import Search

    if quick and trials is not None:
        raise click.UsageError(f"--quick is --trials {_QUICK}: leave one of them out.")
    spec = load_spec(spec_file, overrides)
    num_trials = _QUICK if quick else trials or _TRIALS
    search = Search(spec, run_dir, num_trials, space, scheduler)
    result = search.run(print_remark)
    print_answer(**result.to_json())
    for row in result.trials:
        value = "" if row["value"] is None else f"{row['value']:.5f}"
        values = ", ".join(f"{name}={one}" for name, one in row["values"].items())
        print_result(f"{row['number'] + 1:>4}  {row['state']:9} {value:>9}  {values}")
    if result.best is None:
        return
    given, best, metric = result.given, result.best, result.metric.replace("_", " ")
    if given is None:
        print_result("the given spec was not tried: its values are outside the search space")
    else:
        rows = "windows before they are trained" if search.uses_windows else "validations"
        gain = f"{given:.5f} as given, {best:.5f} ({best - given:+.5f}) best"
        print_result(f"{metric} of {rows}: {gain}")
    number = result.trials[0]["number"]
    print_result(
        f"the best is trial {number + 1}, in {run_dir / 'trials' / f'{number:04}'}; its spec is "
        f"{run_dir / 'best.yaml'}"
    )
