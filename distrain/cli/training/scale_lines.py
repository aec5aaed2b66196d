"""A prediction of a step on many ranks, as lines for people."""

from typing import TYPE_CHECKING

from distrain.wording import byte_size

if TYPE_CHECKING:
    from distrain.train.planning import ScalePlan


def scale_lines(plan: "ScalePlan") -> list[str]:
    """The bottleneck first, then the step by its parts, the links, the memory and the numbers."""
    from distrain.embeddings.sharding import explain

    scale, work, peak = plan.scale, plan.work, plan.peak
    lines = [_verdict(plan), ""]
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


def _verdict(plan: "ScalePlan") -> str:
    first, *others = plan.scale.binds
    text = f"{first.name} binds first: busy {first.busy_s / plan.scale.step_s:.0%} of a step"
    if others:
        text += f"; then {others[0].name}, head-room {others[0].headroom:.2f}x"
    return text if plan.fits else f"does not fit a rank's memory; {text}"
