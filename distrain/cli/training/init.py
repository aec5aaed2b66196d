"""`distrain init`: a job spec to begin with."""

from pathlib import Path

import click

from distrain.cli.options import PATH, json_option, ranks_option


@click.command()
@click.argument("preset", type=click.Choice(["criteo-mlp", "criteo-dlrm"]))
@click.option("--data", required=True, type=PATH, help="The folder that `distrain prep` made.")
@ranks_option(1)
@click.option("--out", type=PATH, default=Path("job.yaml"), help="The file to write.")
@click.option("--overwrite", is_flag=True, help="Replace an existing file.")
@json_option("Print the path of what was written as JSON.")
def command(preset: str, data: Path, ranks: int, out: Path, overwrite: bool, as_json: bool) -> None:
    """Write a job spec with every field at its value, ready for `distrain train`.

    criteo-mlp is the model of NVTabular's TensorFlow notebook, criteo-dlrm a small DLRM.

    \b
    Examples:
      distrain init criteo-dlrm --data criteo --ranks 2
      distrain init criteo-mlp --data /data/criteo --out mlp.yaml
    """
    import shlex

    from distrain.cli.output import print_answer, print_remark, print_result, print_warning
    from distrain.errors import OutputError
    from distrain.spec import PRESETS, dump_yaml, parse_spec
    from distrain.storage import whole_file

    document = PRESETS[preset](str(data), 1).model_dump(mode="json")
    document["resources"]["num_ranks"] = ranks
    document["train"]["lanes"] = "auto"
    spec = parse_spec(document)  # not every number of ranks will do
    document["train"]["lanes"] = spec.train.lanes
    if not (data / "valid").is_dir():
        document["data"]["valid"] = []
    if out.exists() and not overwrite:
        raise OutputError(
            "the file exists already", where={"path": str(out)}, hint="Pass --overwrite."
        )
    with whole_file(out) as partial:
        partial.write_text(dump_yaml(document))
    if not (data / "train").is_dir():
        print_warning(f"note: there is no folder {data / 'train'} yet")
    print_result(f"written to {out}")
    print_remark(f"next: {shlex.join(['distrain', 'train', str(out)])}")
    if as_json:
        print_answer(file=str(out))
