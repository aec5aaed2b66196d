"""`distrain train`: run a job spec."""

from pathlib import Path

import click


@click.command()
@click.argument("spec_file", metavar="SPEC.yaml", type=click.Path(path_type=Path))
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="SECTION.FIELD=VALUE",
    help="Set one field of the spec; may be repeated. The value is read as YAML.",
)
@click.option(
    "--run-dir",
    type=click.Path(path_type=Path),
    help="Where the run's files go; every worker must see it. Default: runs/JOB.",
)
@click.option("--scheduler", metavar="ADDRESS", help="Use this Dask cluster, not a local one.")
@click.option(
    "--dashboard-address",
    default=":0",
    show_default=True,
    help="Where a local cluster's dashboard listens; port 0 takes a free one.",
)
@click.option("--dry-run", is_flag=True, help="Check spec and data, print the resolved spec, stop.")
def command(
    spec_file: Path,
    overrides: tuple[str, ...],
    run_dir: Path | None,
    scheduler: str | None,
    dashboard_address: str,
    dry_run: bool,
) -> None:
    """Train a model as SPEC.yaml says, one torch replica per Dask worker.

    Progress shows on the screen; the run directory gets the spec as resolved, metrics.jsonl,
    summary.json, curves.png, one log per rank, and the model.

    \b
    Examples:
      distrain train job.yaml
      distrain train job.yaml --set train.optimizer.lr=0.02 --set resources.num_ranks=4
      distrain train job.yaml --scheduler tcp://10.0.0.5:8786 --run-dir /shared/runs/today
      distrain train job.yaml --set 'resources={backend: inline}'    # one rank, in this process
    """
    from rich.console import Console

    from distrain.cli.live import LiveProgress
    from distrain.cli.outcome import print_summary
    from distrain.cli.running import Run, train
    from distrain.run_paths import RunPaths, new_job_id
    from distrain.spec import load_spec

    spec = load_spec(spec_file, overrides)
    if dry_run:
        _print_checked(spec)
        return
    job_id = new_job_id(spec.name)
    root = run_dir or Path("runs") / job_id
    console = Console()
    run = Run(spec, root, job_id, scheduler, dashboard_address)
    summary = train(run, LiveProgress(console))
    print_summary(console, summary, RunPaths(root))


def _print_checked(spec) -> None:  # type: ignore[no-untyped-def]
    import yaml

    from distrain.train.inputs import check_inputs

    inputs = check_inputs(spec)
    click.echo(yaml.safe_dump(spec.model_dump(mode="json"), sort_keys=False), nl=False)
    click.echo(f"# {inputs.train.num_rows:,} training rows", err=True)
    if inputs.valid:
        click.echo(f"# {inputs.valid.num_rows:,} validation rows", err=True)
