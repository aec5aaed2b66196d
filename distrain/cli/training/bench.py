"""`distrain bench`: measures a cluster, finds the bottleneck of a step, and checks thresholds."""

import json
import shutil
from pathlib import Path

import click

from distrain.cli.interrupts import if_interrupted
from distrain.cli.options import EXISTING_FILE, PATH, json_option, workers_options
from distrain.cli.output import print_answer, print_remark, print_result


@click.command()
@click.option("--quick", is_flag=True, help="Smaller sizes and fewer repetitions.")
@click.option(
    "--accept",
    "profile",
    metavar="PROFILE",
    type=EXISTING_FILE,
    help="YAML file with this machine type's thresholds; a missed threshold or an outlier gives "
    "FAIL.",
)
@click.option(
    "--compare",
    "earlier",
    metavar="EARLIER.json",
    type=EXISTING_FILE,
    help="bench.json of an earlier run; a significantly worse measure gives FAIL.",
)
@click.option(
    "--out",
    type=PATH,
    default=Path("bench"),
    help="The folder to write, on a filesystem that all workers share.",
)
@click.option("--overwrite", is_flag=True, help="Replace OUT if it exists.")
@click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "cuda"]),
    default="auto",
    help="The device of training steps; auto uses GPUs if every host has them.",
)
@workers_options
@json_option("Print the document and the summary as JSON.")
def command(
    quick: bool,
    profile: Path | None,
    earlier: Path | None,
    out: Path,
    overwrite: bool,
    device: str,
    workers: int,
    scheduler: str | None,
) -> None:
    """Measure a cluster's hosts, storage, loaders, network and training steps, and evaluate them.

    Trains short jobs on 1, 2, 4, ... and all workers, with generated rows. Run it on an idle
    cluster: its jobs wait for workers that other jobs use.

    Writes OUT/bench.json at the end: a run that fails leaves nothing. The exit code is 1 if the
    verdict is FAIL.

    \b
    Examples:
      distrain bench --quick
      distrain bench --scheduler tcp://10.0.0.5:8786 --out /shared/bench
      distrain bench --accept node.yaml --compare bench/bench.json --out bench-now
    """
    from distrain.diagnostics.bench.measuring.sizes import FULL, QUICK
    from distrain.diagnostics.bench.results import bench_json, parse_bench, text_of
    from distrain.diagnostics.bench.run import run_bench
    from distrain.diagnostics.bench.summary import summary_lines
    from distrain.diagnostics.bench.thresholds import parse_thresholds
    from distrain.diagnostics.bench.verdict import judge
    from distrain.storage.outputs import atomic_dir, check_free
    from distrain.workers.local import device_of_workers
    from distrain.workers.open_cluster import ClusterRequest, open_cluster

    thresholds = parse_thresholds(text_of(profile), str(profile)) if profile else None
    before = parse_bench(text_of(earlier), str(earlier)) if earlier else None
    out = out.absolute()
    check_free(out, overwrite)
    if_interrupted(f"nothing was written to {out}")
    if scheduler is None and device == "auto":
        device = device_of_workers(workers)
    request = ClusterRequest(scheduler, workers, device=device)
    with (
        open_cluster(request, print_remark) as client,
        atomic_dir(out, replace=overwrite) as folder,
    ):
        work = folder / "work"
        work.mkdir()
        sizes, mode = (QUICK, "quick") if quick else (FULL, "full")
        bench = run_bench(client, work, sizes, mode, device, print_remark)
        shutil.rmtree(work)
        document = bench_json(bench)
        text = json.dumps(document, indent=1)
        (folder / "bench.json").write_text(f"{text}\n", encoding="utf-8")
    verdict = judge(bench, thresholds, before)
    lines = summary_lines(bench, verdict)
    print_answer(passed=verdict.passed, summary=lines, folder=str(out), **document)
    for number, line in enumerate([*lines, f"written to {out}"]):
        print_result(line, bold=number == 0)
    if not verdict.passed:
        raise click.exceptions.Exit(1)
