"""`distrain prep`: turns raw files into training files."""

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from distrain.cli.data.infer import infer
from distrain.cli.data.prepared import print_prepared
from distrain.cli.interrupts import if_interrupted
from distrain.cli.options import (
    COUNT,
    PATH,
    PLACE,
    POSITIVE,
    bad_lines_options,
    given_options,
    json_option,
    keep_option,
    row_group_option,
    table_options,
    threads_options,
)
from distrain.cli.output import print_answer, print_remark, progress_console
from distrain.cli.progress_bars import WorkProgress
from distrain.errors import DistrainError
from distrain.formatting import command_line

if TYPE_CHECKING:
    from distrain.prep.request import PrepRequest, PrepResult

_NOT_WITH_CONFIG = "{}; with --features, set it in the document"


@click.command()
@click.argument("inputs", metavar="INPUT...", nargs=-1, required=True)
@click.option(
    "--out",
    type=PLACE,
    help="The folder to write, on a filesystem that all workers share, or a prefix of an object "
    "store "
    "(s3://BUCKET/PATH); with --infer the file to write.",
)
@click.option(
    "--valid", multiple=True, help="File, folder or glob with validation rows; may be repeated."
)
@click.option(
    "--test",
    multiple=True,
    help="File, folder or glob with rows for a final evaluation, used for nothing else; may be "
    "repeated.",
)
@click.option(
    "--features",
    "features",
    type=PATH,
    help="The features document, which describes the columns of any other table.",
)
@click.option(
    "--infer",
    is_flag=True,
    help="Prepare nothing: write a features document for --features from a sample of the rows.",
)
@click.option(
    "--valid-fraction",
    type=float,
    help="Validate on this share of the rows, taken from the end; with --infer drawn at random, or "
    "with --time the latest.",
)
@click.option(
    "--valid-rows", type=COUNT, help="Validate on this number of rows, taken from the end."
)
@table_options
@click.option(
    "--workflow",
    "saved_workflow",
    type=PLACE,
    help="Use a fitted workflow (the folder or URL OUT/workflow of an earlier prep) and fit "
    "nothing.",
)
@click.option(
    "--earlier-rows",
    "log",
    multiple=True,
    help="File, folder or glob with earlier rows, whose events are included in histories; the "
    "earlier rows are neither fitted nor written; may be repeated. With --workflow, `none` means "
    "no earlier rows.",
)
@click.option(
    "--update",
    is_flag=True,
    help="With --workflow: add the categories of the training rows. Old ids stay, new ones follow "
    "them; the updated workflow is OUT/workflow. Means and deviations stay as fitted.",
)
@click.option(
    "--unlabeled",
    is_flag=True,
    help="With --workflow: ignore the target, if any; the rows can be scored.",
)
@keep_option("Copy this input column unchanged beside the features; may be repeated.")
@click.option(
    "--freq-threshold",
    type=COUNT,
    default=6,
    show_default=_NOT_WITH_CONFIG.format(6),
    help="Keep categories that occur at least this often; 0 keeps all.",
)
@click.option(
    "--max-size",
    type=COUNT,
    default="10M",
    show_default=_NOT_WITH_CONFIG.format("10M"),
    help="Keep at most this many categories per column, the most frequent; 0 keeps all.",
)
@click.option(
    "--num-buckets",
    type=COUNT,
    default=0,
    show_default=_NOT_WITH_CONFIG.format(0),
    help="Hash the other categories to this many ids; 0 gives them one id.",
)
@click.option(
    "--delimiter",
    default="\\t",
    show_default=_NOT_WITH_CONFIG.format("\\t"),
    help="The delimiter between fields of text.",
)
@click.option("--header", is_flag=True, help="The first line of each text file names the columns.")
@bad_lines_options
@click.option(
    "--embedding-dim",
    type=POSITIVE,
    help="The embedding dimension written to the schema of categories.",
)
@row_group_option
@click.option("--block-mib", type=POSITIVE, default=64, help="MiB of text per task.")
@click.option(
    "--memory-mib",
    type=POSITIVE,
    help="MiB that a worker process may use, all its threads together; larger data is split and "
    "spilled to disk. Default: 320 for each thread and 320 in addition, less if a Dask worker's "
    "limit is lower.",
)
@click.option(
    "--staging",
    type=PLACE,
    help="Where temporary rows and counts are stored: a folder that all workers share, or a URL. "
    "Default: in OUT. If OUT is in an object store, a local folder is faster on one machine.",
)
@threads_options
@click.option("--overwrite", is_flag=True, help="Replace OUT, a folder, if it exists.")
@json_option("Print the result as JSON.")
@click.pass_context
def command(context: click.Context, /, inputs: tuple[str, ...], **options: Any) -> None:
    """Turn raw files into training parquet, a schema and a saved workflow.

    INPUT are files, folders, globs or URLs: Criteo's text (plain, gzip or zstd) with the 40 fields
    label, I1..I13, C1..C26 per line, or parquet with these columns. The order of rows is kept.

    With --features INPUT is any table: parquet, CSV or JSON lines (plain, gzip or zstd) with the
    columns that a features document describes. --infer writes such a document.

    Writes OUT/train, OUT/valid, OUT/schema.pbtxt, OUT/schema.json, OUT/workflow and OUT/prep.json.
    They appear together at the end; a command that fails leaves nothing. In an object store,
    commands that read an unfinished OUT fail.

    \b
    Examples:
      distrain prep day_{0..22}.gz --valid day_23.gz --out criteo
      distrain prep train.txt --valid-fraction 0.1 --bad-lines skip --out criteo
      distrain prep orders.csv --infer --target bought --out features.yaml
      distrain prep orders.csv --features features.yaml --out orders
      distrain prep s3://clicks/day_{0..22}.gz --out s3://clicks/criteo --staging /scratch
      distrain prep day_24.gz --workflow criteo/workflow --out criteo-day-24
      distrain prep day_24.gz --workflow criteo/workflow --update --out criteo-day-24
      distrain prep new.csv --workflow orders/workflow --unlabeled --keep order --out new
    """
    if options["infer"]:
        infer(context)
        return
    if options["out"] is None:
        (out,) = (param for param in context.command.params if param.name == "out")
        raise click.MissingParameter(ctx=context, param=out)
    from distrain.prep.features.file_checks import check_tables
    from distrain.prep.preparation import prepare
    from distrain.prep.reading import with_features
    from distrain.storage.inputs import list_inputs
    from distrain.storage.outputs import check_inputs_outside, check_output
    from distrain.workers.open_cluster import ClusterRequest, open_cluster

    if text := _contradiction(context):
        raise click.UsageError(text, ctx=context)
    request = with_features(_request(inputs, options))
    # Starting workers takes seconds; a mistyped path should not.
    files = list_inputs([*request.inputs, *request.valid, *request.test, *(request.log or ())])
    if request.features is not None:
        check_tables(files, request.features)
    check_output(request.out, request.overwrite)
    check_inputs_outside(request.out, [options["features"]] if options["features"] else [])
    if_interrupted(f"nothing was written to {request.out}")
    wanted = ClusterRequest(options["scheduler"], options["workers"], in_process=True)
    cluster = open_cluster(wanted)
    with cluster as client, WorkProgress(progress_console(), from_start=True) as progress:
        result = prepare(request, client, progress.show_prep)
        if_interrupted(f"{request.out} is written")
    print_answer(folder=str(result.out), **result.to_json())
    print_prepared(result)
    print_remark(f"next: {_next_command(result, options)}")


def _contradiction(context: click.Context) -> str:
    """Return a message about the first contradiction between options; "" if there is none."""
    values = context.params
    saved, update = values["saved_workflow"], values["update"]
    sizes = given_options(context, ("freq_threshold", "max_size", "num_buckets"))
    in_config = [*sizes, *given_options(context, ("delimiter", "header"))]
    of_tables = given_options(context, ("target", "task", "weight", "time"))
    contradictions = {
        f"{', '.join(of_tables)}: only with --infer, which writes them down.": of_tables,
        f"--workflow is already fitted: leave out {', '.join(sizes)}.": saved and sizes,
        "--update needs --workflow, the workflow to update.": update and not saved,
        f"--features describes columns and text: leave out {', '.join(in_config)}.": (
            values["features"] and in_config
        ),
    }
    return next((text for text, is_one in contradictions.items() if is_one), "")


_AS_GIVEN = (
    *(
        "valid",
        "test",
        "valid_fraction",
        "valid_rows",
        "saved_workflow",
        "update",
        "unlabeled",
        "keep",
    ),
    *("max_bad", "row_group_rows", "embedding_dim", "overwrite", "staging"),
)
"""Options that are passed unchanged to the field of `PrepRequest` with the same name."""


def _request(inputs: tuple[str, ...], options: dict[str, Any]) -> "PrepRequest":
    from distrain.prep.features.config import FeatureConfig
    from distrain.prep.raw_lines import TextLayout
    from distrain.prep.request import PrepRequest
    from distrain.prep.workflow import criteo_workflow

    sizes = (options["freq_threshold"], options["max_size"], options["num_buckets"])
    saved = options["saved_workflow"]
    features = FeatureConfig.load(options["features"]) if options["features"] else None
    delimiter = options["delimiter"].replace("\\t", "\t")
    return PrepRequest(
        inputs,
        options["out"],
        **{name: options[name] for name in _AS_GIVEN},
        workflow=None if saved or features else criteo_workflow(*sizes),
        features=features,
        log=() if options["log"] == ("none",) else options["log"] or None,
        layout=TextLayout(delimiter, options["header"]),
        skip_bad_lines=options["bad_lines"] == "skip",
        block_bytes=options["block_mib"] << 20,
        memory_bytes=None if options["memory_mib"] is None else options["memory_mib"] << 20,
    )


def _next_command(result: "PrepResult", options: dict[str, Any]) -> str:
    """Return the command that usually follows a preparation.

    This is `train` with `train.init_from` after `--update`, `predict` if a saved workflow was used,
    and otherwise `init`. If all labels are 1, it names a model for retrieval that suits the
    columns.
    """
    out = str(result.out)
    if options["update"]:
        data = f"data.train={out}/train"
        words = ["train", "JOB", "--set", data, "--set", "train.init_from=RUN"]
    elif options["saved_workflow"]:
        words = ["predict", "RUN", f"{out}/train", "--out", f"{out}-scores"]
        if options["unlabeled"]:
            words += ["--keep", "file", "--keep", "row_number"]
    else:
        kinds = _retrieval_kinds(out) if result.train.num_ones == result.train.num_rows else []
        words = ["init", *kinds[:1], "--data", out, "--out", "job.yaml"]
    return command_line(*words)


def _retrieval_kinds(out: str) -> list[str]:
    """Return the kinds of models for retrieval that suit the columns of prepared rows."""
    from distrain.jobs.spec.presets import job_for
    from distrain.schema.schema import Schema

    kinds: list[str] = []
    for kind in ("two_tower", "sasrec_retrieval"):
        # A hint must not fail a command whose rows are complete.
        with suppress(DistrainError):
            job_for(kind, out, Schema.load(out))
            kinds.append(kind)
    return kinds
