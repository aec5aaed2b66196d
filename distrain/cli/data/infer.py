"""`distrain prep --infer`: infers a features document from a sample of the inputs."""

from dataclasses import asdict
from pathlib import Path

import click

from distrain.cli.options import given_options
from distrain.cli.output import print_answer, print_result, print_warning
from distrain.errors import OutputError
from distrain.formatting import command_line

_ASKED = ("target", "task", "weight", "time", "valid_fraction", "valid_rows")
_ALLOWED = {"inputs", "infer", "out", "overwrite", "bad_lines", *_ASKED}


def infer(context: click.Context) -> None:
    """Write the features document to `--out` and print a summary; without `--out`, print it.

    `context` is that of `distrain prep`. Raises `click.UsageError` if an option is set that is not
    for `--infer`, `OutputError` if the file exists or cannot be written or is an input, and the
    errors of `list_inputs` and `infer_features`.
    """
    given = given_options(context, [name for name in context.params if name not in _ALLOWED])
    if given:
        raise click.UsageError(
            f"--infer only writes a features document: leave out {', '.join(given)}.", ctx=context
        )
    from distrain.prep.features.inference.infer import infer_features
    from distrain.prep.features.inference.user_choices import UserChoices
    from distrain.storage.inputs import list_inputs
    from distrain.storage.outputs import atomic_file, check_inputs_outside

    inputs: tuple[str, ...] = context.params["inputs"]
    named = context.params["out"]
    out = None if named is None else Path(named)
    if out is not None and out.exists() and not (context.params["overwrite"] and out.is_file()):
        raise OutputError(
            f"a {'folder' if out.is_dir() else 'file'} of this name exists already",
            where={"path": out},
            hint="Choose another name for the features document; --overwrite replaces a file.",
        )
    files = list_inputs(inputs)
    if out is not None:
        check_inputs_outside(out, (file.path for file in files))
    *columns, share, rows = (context.params[name] for name in _ASKED)
    targets, task, weight, time = columns
    skips = context.params["bad_lines"] == "skip"
    choices = UserChoices(targets, task, share or rows, time, weight)
    inferred = infer_features(files, choices, skip_bad_lines=skips)
    if out is not None:
        with atomic_file(out) as partial_file:
            partial_file.write_text(inferred.text, encoding="utf-8")
    document = inferred.features.document.model_dump(mode="json", exclude_defaults=True)
    print_answer(
        file=None if out is None else str(out),
        sample=inferred.sample,
        features={"version": 1, **document},
        left_out=inferred.left_out,
        reasons={"target": inferred.target_reason, **inferred.reasons},
        odd_values=[asdict(odd) for odd in inferred.odd],
        revealing=inferred.revealing,
        bad_lines={"count": inferred.bad_lines.count, "by_kind": inferred.bad_lines.by_kind},
    )
    for warning in inferred.warnings:
        print_warning(f"warning: {warning}")
    if inferred.has_many_bad:
        print_warning(f"warning: {inferred.bad_lines_text}")
    if out is None:
        print_result(inferred.text.rstrip("\n"))
        return
    features = len(inferred.features.document.columns)
    noun = "column" if len(inferred.left_out) == 1 else "columns"
    skip = ["--bad-lines", "skip"] if skips or inferred.bad_lines_text else []
    prep = command_line("prep", *inputs, "--features", out, "--out", "prepared", *skip)
    few_bad = (
        ""
        if inferred.has_many_bad or not inferred.bad_lines_text
        else f"{inferred.bad_lines_text}\n"
    )
    print_result(
        f"{out}: {features} features, {len(inferred.left_out)} {noun} left out, from "
        f"{inferred.sample}\n{few_bad}target: {inferred.features.document.target.column} "
        f"({inferred.target_reason})\nCheck and edit it, then run:\n  {prep}"
    )
