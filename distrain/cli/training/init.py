"""`distrain init`: writes a job spec to start with."""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from distrain.cli.options import PATH, json_option, ranks_option

if TYPE_CHECKING:
    from distrain.jobs.spec.fitting import TableFacts
    from distrain.schema.schema import Schema


@click.command()
@click.argument("model", metavar="[MODEL]", required=False)
@click.option("--data", required=True, type=PATH, help="The folder written by `distrain prep`.")
@ranks_option(1)
@click.option("--out", type=PATH, default=Path("job.yaml"), help="The file to write.")
@click.option("--overwrite", is_flag=True, help="Replace an existing file.")
@json_option("Print the path of the written file as JSON.")
def command(
    model: str | None, data: Path, ranks: int, out: Path, overwrite: bool, as_json: bool
) -> None:
    """Write a job spec with every field at its value, ready for `distrain train`.

    MODEL is one of docs/models; or criteo-mlp, the model of NVTabular's TensorFlow notebook, or
    criteo-dlrm, a small DLRM. The default is dcn_v2 if a column has very many ids, most of them
    rare, as in Criteo's logs; otherwise mlp. Targets, weight and windows come from the schema in
    the data's folder. Batch size, epochs, learning rate, and early stopping if there are validation
    rows, are chosen for the table. The two presets have their own training settings.

    \b
    Examples:
      distrain init --data orders
      distrain init criteo-dlrm --data criteo --ranks 2
      distrain init criteo-mlp --data /data/criteo --out mlp.yaml
    """
    import shlex

    from distrain.cli.output import print_answer, print_remark, print_result, print_warning
    from distrain.errors import OutputError, SchemaError
    from distrain.jobs.spec.fitting import default_kind
    from distrain.jobs.spec.load import dump_yaml, parse_spec
    from distrain.jobs.spec.presets import MODELS, PRESETS, job_for
    from distrain.schema.files import find_schema
    from distrain.schema.schema import Schema
    from distrain.storage.outputs import whole_file

    if model is not None and model not in (known_models := (*PRESETS, *MODELS)):
        raise click.BadParameter(
            f"{model!r} is not one of {', '.join(known_models)}.", param_hint="'[MODEL]'"
        )
    schema = None
    with suppress(SchemaError):
        schema = find_schema(data)
    loaded = None if schema is None else Schema.load(schema)
    table = None if loaded is None else _facts(data, loaded)
    kind = model or default_kind(loaded, table)
    document = job_for(kind, str(data), loaded, table)
    document["resources"]["num_ranks"] = ranks
    document["train"]["lanes"] = "auto"
    document = parse_spec(document).model_dump(mode="json")  # not every number of ranks is valid
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


def _facts(data: Path, schema: "Schema") -> "TableFacts | None":
    """Return facts about the prepared rows; `None` if they cannot be read yet."""
    from distrain.cli.output import print_warning
    from distrain.errors import DistrainError
    from distrain.jobs.spec.fitting import TableFacts
    from distrain.jobs.spec.presets import windows_of
    from distrain.loader.partition.footers import read_footers
    from distrain.loader.partition.scanning import column_moments
    from distrain.schema.column import Tags
    from distrain.storage.retrying import first_line

    train, windows = data / "train", windows_of(schema)
    if not train.is_dir():
        return None
    targets, weights = (schema.select_by_tag(tag) for tag in (Tags.TARGET, Tags.WEIGHT))
    try:
        table = read_footers(str(train), schema)
        moments = column_moments(table, targets.columns, next(iter(weights.names), None))
        cut = windows and read_footers(str(train), schema, windows=windows).windows
    except (DistrainError, OSError, ValueError) as error:
        print_warning(f"note: training settings are not chosen for the table: {first_line(error)}")
        return None
    count = len(cut.names) if cut else 1
    return TableFacts(table.num_rows, (data / "valid").is_dir(), moments, count)
