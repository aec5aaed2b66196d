"""`distrain plan`: what a job's ranks will read, hold and exchange."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from distrain.cli.options import PATH, POSITIVE, json_option, overrides_option, scheduler_option
from distrain.cli.output import print_json, print_result, print_warning
from distrain.errors import DistrainError
from distrain.formatting import byte_size

if TYPE_CHECKING:
    from distrain.train.planning.machine_file import MachineFile
    from distrain.train.planning.plan import JobPlan
    from distrain.train.planning.scale_plan import ScalePlan


@click.command()
@click.argument("spec_file", metavar="SPEC.yaml", type=PATH)
@overrides_option
@click.option(
    "--memory-budget",
    default="1GB",
    metavar="SIZE",
    help="What a rank's loader may hold before advice is given, like 600MB or 1.5GiB.",
)
@click.option(
    "--ranks",
    type=POSITIVE,
    metavar="N",
    help="Plan for so many ranks, instead of resources.num_ranks.",
)
@click.option(
    "--machine",
    metavar="FILE",
    help="Predict a step on nodes of this kind: a machine file, the bench.json of a bench, "
    "or h100-node or h200-node.",
)
@scheduler_option("Plan for this Dask cluster: leave out what depends on its machines.")
@json_option("Print the plan as JSON.")
def command(
    spec_file: Path,
    overrides: tuple[str, ...],
    memory_budget: str,
    ranks: int | None,
    machine: str | None,
    scheduler: str | None,
    as_json: bool,
) -> None:
    """Show what the ranks of a job will read, hold in memory and exchange; start nothing.

    The job is checked as `distrain train` checks it. Footers are read, rows are not. First comes
    the loader, with its memory on the host, at most and for one epoch; then each embedding table:
    where it lives and why, what a rank holds of it with its optimizer state, and sends for it in a
    step. Without embeddings.memory_gib the tables may take a share of this machine's memory. Then
    all that a rank holds at its peak, by terms: for that the model, with small tables, takes a few
    steps of some thousand rows in this process. Advice follows where the files, or how they are
    read, could be better. With --json the mistakes of a job that fails its checks are printed as
    JSON, too: `errors`, each with its message, its places (`where`) and a hint.

    With --machine nothing of this machine counts. The plan is of --ranks ranks on nodes of that
    kind: how long a step takes by its parts, what goes over which link, how much of a lone rank's
    speed is left, and what a rank holds. The first line says what limits them. It is arithmetic
    with the file's numbers (docs/scaling.md), not a measurement.

    \b
    Examples:
      distrain plan job.yaml
      distrain plan job.yaml --set resources.num_ranks=8 --set data.parts_per_chunk=4
      distrain plan job.yaml --memory-budget 600MB --json
      distrain plan job.yaml --set embeddings.memory_gib=40
      distrain plan job.yaml --ranks 128 --machine h100-node
      distrain plan job.yaml --ranks 16 --machine bench/bench.json
    """
    if ranks is not None:
        overrides = (*overrides, f"resources.num_ranks={ranks}")
    try:
        if machine is not None:
            lines, document, notes = _scale(spec_file, overrides, machine)
        else:
            plan, notes = _plan(spec_file, overrides, memory_budget, scheduler)
            lines, document = plan_lines(plan), plan.to_json()
    except DistrainError as error:
        if as_json:
            print_json({"errors": [one.to_json() for one in error.parts or (error,)]})
        raise
    if as_json:
        print_json({**document, "notes": notes})
    else:
        for line in lines:
            print_result(line)
    for note in notes:
        print_warning(f"note: {note}")


def _plan(
    spec_file: Path, overrides: tuple[str, ...], memory_budget: str, scheduler: str | None
) -> "tuple[JobPlan, list[str]]":
    from distrain.jobs.spec.load import load_spec
    from distrain.jobs.spec.paths import with_absolute_paths
    from distrain.launch.checks import JobChecks

    spec = with_absolute_paths(load_spec(spec_file, overrides))
    checked = JobChecks(spec, scheduler=scheduler).run()

    from distrain.loader.options import parse_bytes
    from distrain.train.control.rank_setup import choose_device
    from distrain.train.planning.plan import plan_job

    device = checked.device or choose_device(spec.resources)
    plan = plan_job(checked.spec, checked.inputs, device, parse_bytes(memory_budget))
    return plan, checked.notes


def _scale(
    spec_file: Path, overrides: tuple[str, ...], machine_name: str
) -> tuple[list[str], dict[str, object], list[str]]:
    from distrain.jobs.spec.load import load_spec
    from distrain.jobs.spec.paths import with_absolute_paths
    from distrain.launch.checks import JobChecks
    from distrain.train.planning.scale_plan import plan_scale

    machine = _machine(machine_name)
    # The file's lanes are those of its own number of ranks; a step takes as long with others.
    spec = with_absolute_paths(load_spec(spec_file, ("train.lanes=auto", *overrides)))
    checked = JobChecks(spec, scheduler=machine.name).run()  # its ranks are not to run here
    plan = plan_scale(checked.spec, checked.inputs, machine)
    return scale_lines(plan), plan.to_json(), checked.notes


def _machine(name: str) -> "MachineFile":
    """A machine file, or the machine of a bench."""
    from distrain.train.planning.machine_file import load_machine

    if not name.endswith(".json"):
        return load_machine(name)
    from distrain.diagnostics.bench.document import load_bench
    from distrain.diagnostics.bench.machine import machine_of_bench

    return machine_of_bench(load_bench(Path(name)), name)


def plan_lines(plan: "JobPlan") -> list[str]:
    from distrain.models.embeddings.sharding.plan import explain

    smallest, largest = plan.row_group_rows
    share, memory = plan.share, plan.memory
    facts = {
        "rows": f"{plan.rows:,} in {plan.files:,} files, "
        f"{byte_size(plan.compressed_bytes)} compressed",
        "row groups": f"{plan.row_groups:,}, of {smallest:,} to {largest:,} rows",
        "fingerprint": plan.fingerprint,
        "steps": f"{plan.steps_per_epoch:,} an epoch, {plan.steps:,} in all, "
        f"of {plan.global_batch_size:,} rows",
        "ranks": f"{share.num_ranks}, each with {share.lanes} of {plan.lanes} lanes and up to "
        f"{share.rows_per_step:,} rows a step",
        "slices": f"{plan.slices:,} of a rank's batch (train.micro_batches)",
        "reader": f"{plan.reader}: {plan.reader_reason}",
        "shuffle": f"{plan.shuffle}, chunks of up to {plan.chunk_rows:,} rows",
        "ahead": f"{plan.prefetch_batches} finished batches, {plan.decode_threads} row groups "
        "decoded at a time",
        "memory": f"{byte_size(memory.total_bytes)} a rank at most",
    }
    if plan.windows:
        first, last = plan.windows[0], plan.windows[-1]
        facts["windows"] = f"{len(plan.windows):,} one after another: {first} to {last}"
    lines = [f"{name:12}{value}" for name, value in facts.items()]
    lines += [
        f"{'':12}{byte_size(size):>12}  {what}"
        for size, what in (
            (memory.blocks_bytes, f"{memory.batches} batches of {memory.batch_rows:,} rows"),
            (memory.decode_bytes, "decoded row groups"),
            (memory.order_bytes, "permutations"),
            (memory.schedule_bytes, "schedule of the row groups"),
            (memory.streams_bytes, "large row groups that are open"),
            (memory.fetched_bytes, "row groups fetched ahead"),
            (memory.buckets_bytes, "buckets of the full shuffle"),
            (memory.disk_bytes, "on disk for the full shuffle (data.shuffle_dir)"),
        )
        if size or not any(word in what for word in ("large", "ahead", "full"))
    ]
    if plan.other_numbers:
        lines += ["", f"{'ranks':>5}{'lanes':>7}{'rows a step':>13}{'memory':>13}"]
        lines += [
            f"{other.num_ranks:5}{other.lanes:7}{other.rows_per_step:13,}"
            f"{byte_size(other.memory_bytes):>13}"
            for other in plan.other_numbers
        ]
    lines += ["", *explain(plan.tables), "", *_peak_lines(plan)]
    return [*lines, "", *(f"note: {advice}" for advice in plan.advice)] if plan.advice else lines


def _peak_lines(plan: "JobPlan") -> list[str]:
    peak = plan.peak
    on_gpu = peak.device_bytes > 0
    total = f"a rank holds at its peak, predicted: {byte_size(peak.host_bytes)} on the host"
    if on_gpu:
        total += f", {byte_size(peak.device_bytes)} on its GPU"
    lines = [total]
    for term in peak.terms:
        device = f"{byte_size(term.device_bytes):>14}" if on_gpu else ""
        lines.append(f"{byte_size(term.host_bytes):>14}{device}  {term.name}")
    return lines


def scale_lines(plan: "ScalePlan") -> list[str]:
    """The bottleneck first, then the step by its parts, the links, the memory and the numbers."""
    from distrain.models.embeddings.sharding.plan import explain

    scale, work, peak = plan.scale, plan.work, plan.peak
    lines = [_bottleneck(plan), ""]
    facts = {
        "ranks": f"{scale.num_ranks} on {scale.nodes} nodes: {plan.machine.name}",
        "step": f"{scale.step_s * 1e3:,.3f} ms for {work.global_rows:,} rows, {work.rows:,} a rank",
        "rows/s": f"{scale.rows_per_s:,.0f} predicted",
        "efficiency": f"{scale.efficiency:.0%} of a rank alone with as many rows",
        "sends": f"{byte_size(scale.link_bytes)} a rank and step on its node, "
        f"{byte_size(scale.network_bytes)} to other nodes",
        "memory": f"{byte_size(peak.host_bytes)} of {byte_size(plan.host_memory_bytes)} "
        "of the host a rank",
    }
    if plan.machine.device == "cuda":
        facts["memory"] += (
            f", {byte_size(peak.device_bytes)} of {byte_size(plan.device_memory_bytes)} of its GPU"
        )
    lines += [f"{name:12}{value}" for name, value in facts.items()]
    lines += ["", f"{'part':20}{'ms':>10}"]
    lines += [f"{name:20}{s * 1e3:10,.3f}" for name, s in scale.parts_s.items() if s]
    if len(scale.exchange_s) > 1:
        lines += [
            f"  {name:18}{seconds * 1e3:10,.3f}" for name, seconds in scale.exchange_s.items()
        ]
    lines += ["", f"{'busy':20}{'ms':>10}{'head-room':>11}"]
    lines += [
        f"{share.name:20}{share.busy_s * 1e3:10,.3f}{share.headroom:10,.2f}x"
        for share in scale.binds
    ]
    lines += ["", *explain(plan.tables), "", "numbers of the machine"]
    lines += [
        f"  {name:30} {getattr(plan.machine, name):<10.4g} {source}"
        for name, source in plan.machine.sources.items()
    ]
    return lines


def _bottleneck(plan: "ScalePlan") -> str:
    first, *others = plan.scale.binds
    text = f"{first.name} binds first: busy {first.busy_s / plan.scale.step_s:.0%} of a step"
    if others:
        text += f"; then {others[0].name}, head-room {others[0].headroom:.2f}x"
    return text if plan.fits else f"does not fit a rank's memory; {text}"
