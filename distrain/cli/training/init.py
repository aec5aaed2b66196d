"""`distrain init`: writes a job spec to start with."""

from pathlib import Path

import click

from distrain.cli.options import PATH, json_option, ranks_option


@click.command()
@click.argument("model", metavar="[MODEL]", required=False)
@click.option("--data", required=True, type=PATH, help="The folder written by `distrain prep`.")
@ranks_option(1)
@click.option("--out", type=PATH, default=Path("job.yaml"), help="The file to write.")
@click.option("--full", is_flag=True, help="Write every field, with its default.")
@click.option("--overwrite", is_flag=True, help="Replace OUT if it exists.")
@json_option("Print the path of the written file as JSON.")
def command(
    model: str | None,
    data: Path,
    ranks: int,
    out: Path,
    full: bool,
    overwrite: bool,
) -> None:
    """Write a job spec, ready for `distrain train`: the fields to change, each with a comment.

    MODEL is one of the models in docs/models, or a preset: criteo-mlp, the model of NVTabular's
    TensorFlow notebook, or criteo-dlrm, a small DLRM. The default is dcn_v2 if one epoch suits the
    table, and 1 to about 60 columns have ids. Otherwise it is mlp. One epoch suits a table in which
    a column has more than one id per 50 rows (per 5 rows if the target is multiclass), as in
    Criteo's logs, except tables of fewer than about 4,000 rows. It also suits a table for which two
    epochs would take more than 4,000 steps. Without validation rows the limit is 500 steps, which
    nearly every table of more than 8,000 rows exceeds.

    If a table of at most 1,000 rows shows only linear effects, the mlp has no hidden layers
    (hidden: []).

    Targets, weight and windows come from the schema in the data's folder. Batch size, epochs and
    learning rate are chosen for the table. With validation rows and without windows, early stopping
    is set. If `distrain prep` also took these rows from its input, and there are fewer than 10
    million training rows, a refit finally trains on all rows; retrieval models are not refitted.
    The two presets have their own training settings.

    \b
    Examples:
      distrain init --data orders
      distrain init criteo-dlrm --data criteo --ranks 2
      distrain init criteo-mlp --data /data/criteo --out mlp.yaml --full
    """
    from distrain.cli.output import print_answer, print_remark, print_result, print_warning
    from distrain.errors import OutputError
    from distrain.formatting import command_line
    from distrain.jobs.spec.load import dump_yaml, parse_spec
    from distrain.jobs.spec.short_yaml import short_yaml
    from distrain.launch.new_job import new_job
    from distrain.storage.outputs import atomic_file

    # Not every number of ranks is valid.
    spec = parse_spec(new_job(data, model, print_warning, ranks))
    if out.exists() and not overwrite:
        raise OutputError(
            "the file exists already", where={"path": str(out)}, hint="Pass --overwrite."
        )
    with atomic_file(out) as partial:
        text = dump_yaml(spec.model_dump(mode="json")) if full else short_yaml(spec)
        partial.write_text(text, encoding="utf-8")
    if not (data / "train").is_dir():
        print_warning(f"note: there is no folder {data / 'train'} yet")
    print_result(f"written to {out}")
    print_remark(f"next: {command_line('train', out)}")
    print_answer(file=str(out))
