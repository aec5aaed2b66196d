"""`distrain ensemble`: combines runs into one that predicts the mean of their predictions."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from distrain.cli.interrupts import if_interrupted
from distrain.cli.models.models import check_data, find_model, validation_of
from distrain.cli.options import PATH, POSITIVE, json_option
from distrain.cli.output import print_answer, print_remark, print_result, progress_console
from distrain.errors import InputError

if TYPE_CHECKING:
    from distrain.metrics.report import BinaryReport
    from distrain.models.saved_model import SavedModel

_FIGURES = ("auc", "log_loss", "normalised_entropy", "calibration")


@click.command()
@click.argument("runs", metavar="RUN RUN ... | SPEC.yaml", nargs=-1, required=True, type=PATH)
@click.option("--out", required=True, type=PATH, help="The run folder to write.")
@click.option(
    "--valid",
    metavar="DATA",
    multiple=True,
    help="Labelled rows for the metrics, prepared or raw; may be repeated. Default: the validation "
    "data of all runs, if equal.",
)
@click.option(
    "--seeds",
    type=POSITIVE,
    metavar="N",
    help="First train N runs of one job spec, with N successive seeds, in OUT-runs.",
)
@click.option("--threads", type=POSITIVE, default=1, help="Number of torch's CPU threads.")
@click.option("--overwrite", is_flag=True, help="Replace OUT if it exists; runs in OUT-runs stay.")
@json_option("Print the metrics as JSON.")
def command(
    runs: tuple[Path, ...],
    out: Path,
    valid: tuple[str, ...],
    seeds: int | None,
    threads: int,
    overwrite: bool,
) -> None:
    """Combine several runs into one that predicts the mean of their predictions; measure it.

    Each RUN is a run folder or its model folder. The runs may differ in seeds, models and training
    settings; targets, columns and ids must be the same.

    With --seeds and SPEC.yaml, a job spec, the command trains the runs first. Repeat the command to
    continue interrupted runs; finished runs are not trained again.

    A row's probability is the mean of the runs' probabilities; for regression, the prediction is
    the mean of the predictions. The folder OUT contains copies of the models. `distrain evaluate`,
    `predict` and `export` accept it like a run, and `distrain.load` opens it.

    \b
    Examples:
      distrain ensemble runs/seed-1 runs/seed-2 runs/seed-3 --out runs/mean
      distrain ensemble job.yaml --seeds 3 --out runs/mean
      distrain ensemble runs/dcn runs/mlp --out runs/both --valid criteo/valid
      distrain export runs/mean exported --to onnx
    """
    from distrain.storage.outputs import check_free, check_inputs_outside

    check_free(out, overwrite)
    if valid:
        check_data(valid)
    if seeds is not None:
        runs = _trained(runs, seeds, out)
    folders = [find_model(run) for run in runs]
    if len({Path(folder).resolve() for folder in folders}) < max(2, len(folders)):
        raise InputError("an ensemble needs two different runs", hint="Give each of them once.")
    data = valid or validation_of(runs)
    check_inputs_outside(out, [*folders, *data])
    check_data(data)

    print_remark("loading the models")  # before imports, which take seconds
    import torch

    from distrain.predict.ensembling import ensemble_of, write_ensemble
    from distrain.predict.evaluation import evaluate_saved
    from distrain.predict.load_model import open_model
    from distrain.predict.logits import ScorerInProcess
    from distrain.predict.raw_rows import rows_for_model

    torch.set_num_threads(threads)
    if_interrupted(f"nothing was written to {out}")
    members = {str(run): open_model(folder) for run, folder in zip(runs, folders, strict=True)}
    whole = ensemble_of(members)
    judged = members
    if not valid and any("refitted_on" in saved.about for saved in members.values()):
        print_remark(
            "the metrics are those of the models before their refits, which trained on these rows"
        )
        judged = {
            str(run): open_model(find_model(run, "best"))
            if "refitted_on" in members[str(run)].about
            else members[str(run)]
            for run in runs
        }

    with rows_for_model(folders[0], whole, data) as (dataset, *_):

        def measured(name: str, saved: "SavedModel") -> "BinaryReport":
            print_remark(f"scoring {len(dataset):,} rows with {name}")
            return evaluate_saved(ScorerInProcess(saved, dataset))

        figures_by_run = {name: _figures(measured(name, saved)) for name, saved in judged.items()}
        report = measured("the ensemble", ensemble_of(judged))
    write_ensemble(out, whole, report, folders, data, replace=overwrite)
    figures = _figures(report)
    print_answer(folder=str(out), rows=report.rows, ensemble=figures, runs=figures_by_run)
    for name, of_run in (*figures_by_run.items(), ("the ensemble", figures)):
        shown = (f"{figure.replace('_', ' ')} {value:.5f}" for figure, value in of_run.items())
        print_result(f"{name}: {', '.join(shown)}")
    print_result(f"the mean of {len(figures_by_run)} runs: {out}")


def _trained(specs: tuple[Path, ...], seeds: int, out: Path) -> tuple[Path, ...]:
    from distrain.cli.job_progress import JobProgress
    from distrain.jobs.spec.load import load_spec
    from distrain.launch.seeds import train_seeds

    if len(specs) != 1 or seeds < 2:
        raise click.UsageError("--seeds N takes one job spec, and N of at least 2.")
    folder = out.with_name(f"{out.name}-runs")
    left = f"the same command continues the runs in {folder}"

    def progress_of(line: str) -> JobProgress:
        print_remark(line)
        if_interrupted(left)
        return JobProgress(progress_console(), left)

    return (*train_seeds(load_spec(specs[0]), folder, seeds, progress_of),)


def _figures(report: "BinaryReport") -> dict[str, Any]:
    own = {name: getattr(report, name) for name in _FIGURES}
    figures = {name: value for name, value in own.items() if value is not None}
    for target, metrics in report.targets.items():
        figures |= {f"{target}.{k}": value for k, value in metrics.items() if value is not None}
    return figures
