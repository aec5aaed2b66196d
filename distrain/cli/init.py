"""`distrain init`: a job spec to begin with."""

from pathlib import Path

import click

from distrain.cli.params import json_option


@click.command()
@click.argument("preset", type=click.Choice(["criteo-mlp", "criteo-dlrm"]))
@click.option(
    "--data",
    required=True,
    type=click.Path(path_type=Path),
    help="The folder that `distrain prep` made.",
)
@click.option(
    "--ranks",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Replicas that train together.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("job.yaml"),
    show_default=True,
    help="The file to write.",
)
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

    from distrain.cli.output import answer, say, tell, warn
    from distrain.errors import OutputError
    from distrain.spec import parse_spec
    from distrain.spec.document import dump_yaml
    from distrain.spec.presets import PRESETS
    from distrain.storage import whole_file

    document = PRESETS[preset](str(data), 1).model_dump(mode="json")
    document["resources"]["num_ranks"] = ranks
    parse_spec(document)  # not every number of ranks will do
    if not (data / "valid").is_dir():
        document["data"]["valid"] = []
    if out.exists() and not overwrite:
        raise OutputError(
            "the file exists already", where={"path": str(out)}, hint="Pass --overwrite."
        )
    with whole_file(out) as partial:
        partial.write_text(dump_yaml(document))
    if not (data / "train").is_dir():
        warn(f"note: there is no folder {data / 'train'} yet")
    tell(f"written to {out}")
    say(f"next: {shlex.join(['distrain', 'train', str(out)])}")
    if as_json:
        answer(file=str(out))
