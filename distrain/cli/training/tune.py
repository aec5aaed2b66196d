"""`distrain tune`: a search for a better spec."""

from pathlib import Path

import click

from distrain.cli.options import PATH, connection_options, json_option, overrides_option

_QUICK = 8


@click.command()
@click.argument("spec_file", metavar="SPEC.yaml", type=PATH)
@click.option("--trials", type=click.IntRange(1), default=20, help="Runs in all.")
@click.option("--quick", is_flag=True, help=f"{_QUICK} trials in place of 20.")
@click.option(
    "--over",
    "space",
    multiple=True,
    metavar="FIELD=VALUES",
    help="Search this field: LOW..HIGH, or A,B,C. Default: rate, rows of a step, widths, dropout.",
)
@overrides_option
@click.option("--run-dir", type=PATH, required=True, help="The folder of the search's runs.")
@connection_options("Run the trials on this Dask cluster, not on local ones.")
@json_option("Print the trials as JSON at the end.")
def command(
    spec_file: Path,
    trials: int,
    quick: bool,
    space: tuple[str, ...],
    overrides: tuple[str, ...],
    run_dir: Path,
    scheduler: str | None,
    as_json: bool,
) -> None:
    """Train a spec with other values, and write the best as a spec.

    The first trial is the spec as it is, where its values lie in the space. Optuna chooses the
    values of the others, and ends one early (successive halving) where others were better after as
    many validations. What is compared is the best value of checkpoint.keep_best.

    The same command goes on with a search that was stopped: trials that ended stay, one that was
    killed goes on from its checkpoint. `--trials` may be larger then.

    \b
    Examples:
      distrain tune job.yaml --run-dir search --quick
      distrain tune job.yaml --run-dir search --trials 40 --over model.embedding_dim=8,16,32
      distrain tune job.yaml --run-dir search --over train.optimizer.lr=0.001..0.1
      distrain train search/best.yaml
    """
    from distrain.cli.output import json_wanted, print_json, print_remark, print_result
    from distrain.running import Search
    from distrain.spec import load_spec

    spec = load_spec(spec_file, overrides)
    search = Search(spec, run_dir, _QUICK if quick else trials, space, scheduler)
    rows = search.run(print_remark)
    if json_wanted():
        print_json(rows)
        return
    for row in rows:
        value = "" if row["value"] is None else f"{row['value']:.5f}"
        values = ", ".join(f"{name}={one}" for name, one in row["values"].items())
        print_result(f"{row['number'] + 1:>4}  {row['state']:9} {value:>9}  {values}")
    first = min(rows, key=lambda row: row["number"])
    if first["state"] == rows[0]["state"] == "complete":
        how = "as the spec is" if search.is_as_given(first) else "by trial 1"
        print_result(
            f"{spec.best_metric}: {first['value']:.5f} {how}, {rows[0]['value']:.5f} by "
            f"trial {rows[0]['number'] + 1}, written to {run_dir / 'best.yaml'}"
        )
