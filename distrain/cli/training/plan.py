"""`distrain plan`: shows what a job's ranks will read, need and exchange."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from distrain.cli.options import PATH, POSITIVE, json_option, overrides_option, scheduler_option
from distrain.cli.output import print_json, print_remark, print_result, print_warning
from distrain.errors import DistrainError
from distrain.formatting import byte_size

if TYPE_CHECKING:
    from distrain.train.planning.plan import JobPlan


@click.command()
@click.argument("spec_file", metavar="SPEC.yaml", type=PATH)
@overrides_option
@click.option(
    "--ranks",
    type=POSITIVE,
    metavar="N",
    help="Plan for this number of ranks instead of resources.num_ranks.",
)
@scheduler_option("Plan for this Dask cluster: skip checks that depend on its machines.")
@json_option("Print the plan as JSON.")
def command(
    spec_file: Path,
    overrides: tuple[str, ...],
    ranks: int | None,
    scheduler: str | None,
) -> None:
    """Show what the ranks of a job will read, hold in memory and exchange; start nothing.

    The job is checked as by `distrain train`. Only the footers of the files are read, not the rows.
    The output has these parts:

    \b
    - the loader, with its peak host memory for one epoch;
    - each embedding table: its placement with the reason, a rank's memory
      for it with optimizer state, and the bytes that it sends in a step;
    - a rank's whole memory at its peak, by terms, measured in this process
      by a few steps of some thousand rows, with small tables;
    - advice, if the files or their reading could be improved.

    Without embeddings.memory_gib the tables may use a share of this machine's memory. With --json,
    if the job fails its checks, the mistakes are printed as JSON: `errors`, each with a message,
    its places (`where`) and a hint.

    To plan for other machines, set --ranks and embeddings.memory_gib, the memory for a rank's
    tables there.

    \b
    Examples:
      distrain plan job.yaml
      distrain plan job.yaml --set resources.num_ranks=8 --set data.parts_per_chunk=4
      distrain plan job.yaml --json
      distrain plan job.yaml --set embeddings.memory_gib=40
      distrain plan job.yaml --ranks 128 --set embeddings.memory_gib=60
    """
    if ranks is not None:
        overrides = (*overrides, f"resources.num_ranks={ranks}")
    print_remark("checking the job")  # before imports, which take seconds
    try:
        plan, notes = _plan(spec_file, overrides, scheduler)
    except DistrainError as error:
        print_json({"errors": [one.to_json() for one in error.parts or (error,)]})
        raise
    print_json({**plan.to_json(), "notes": notes})
    for line in plan_lines(plan):
        print_result(line)
    for note in notes:
        print_warning(f"note: {note}")


def _plan(
    spec_file: Path, overrides: tuple[str, ...], scheduler: str | None
) -> "tuple[JobPlan, list[str]]":
    from distrain.jobs.spec.load import load_spec
    from distrain.jobs.spec.paths import with_absolute_paths
    from distrain.launch.job_checks import JobChecks

    spec = with_absolute_paths(load_spec(spec_file, overrides))
    checked = JobChecks(spec, scheduler=scheduler).run()

    from distrain.train.control.rank_setup import choose_device
    from distrain.train.planning.plan import plan_job

    device = checked.device or choose_device(spec.resources)
    plan = plan_job(checked.spec, checked.inputs, device)
    return plan, checked.notes


def plan_lines(plan: "JobPlan") -> list[str]:
    """Return a plan as lines of text: reading, memory, tables and advice."""
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
        facts["windows"] = f"{len(plan.windows):,} in order: {first} to {last}"
    lines = [f"{name:12}{value}" for name, value in facts.items()]
    lines += [
        f"{'':12}{byte_size(size):>12}  {part}"
        for size, part in (
            (memory.blocks_bytes, f"{memory.batches} batches of {memory.batch_rows:,} rows"),
            (memory.decode_bytes, "decoded row groups"),
            (memory.order_bytes, "permutations"),
            (memory.schedule_bytes, "schedule of the row groups"),
            (memory.streams_bytes, "large open row groups"),
            (memory.fetched_bytes, "row groups fetched ahead"),
            (memory.buckets_bytes, "buckets of the full shuffle"),
        )
        if size or not any(word in part for word in ("large", "ahead", "full"))
    ]
    lines += ["", *explain(plan.tables), "", *_peak_lines(plan)]
    return [*lines, "", *(f"note: {advice}" for advice in plan.advice)] if plan.advice else lines


def _peak_lines(plan: "JobPlan") -> list[str]:
    peak = plan.peak
    on_gpu = peak.device_bytes > 0
    total = f"predicted peak memory of a rank: {byte_size(peak.host_bytes)} on the host"
    if on_gpu:
        total += f", {byte_size(peak.device_bytes)} on its GPU"
    lines = [total]
    for term in peak.terms:
        device = f"{byte_size(term.device_bytes):>14}" if on_gpu else ""
        lines.append(f"{byte_size(term.host_bytes):>14}{device}  {term.name}")
    return lines
