"""A plan of tables for people."""

from distrain.embeddings.fitting import size_text
from distrain.embeddings.sharding_plan import ShardingPlan


def explain(plan: ShardingPlan) -> list[str]:
    """Lines: a table of all tables, the totals, and why each placement was taken."""
    wide = max([5, *(len(table.name) for table in plan.tables)])
    lines = [
        f"{'table':{wide}}{'rows':>13}{'dim':>5}  {'placement':12}{'a rank holds':>14}"
        f"{'rows a step':>13}{'sends a step':>14}"
    ]
    lines += [
        f"{table.name:{wide}}{table.rows:13,}{table.dim:5}  {table.placement:12}"
        f"{size_text(table.weight_bytes + table.optimizer_bytes):>14}{table.unique:13,.0f}"
        f"{size_text(table.sent.total):>14}"
        for table in plan.tables
    ]
    return [*lines, "", *_totals(plan), "", *_reasons(plan)]


def _totals(plan: ShardingPlan) -> list[str]:
    weights = sum(table.weight_bytes for table in plan.tables)
    state = sum(table.optimizer_bytes for table in plan.tables)
    limit = "no limit" if plan.budget_bytes is None else f"limit {size_text(plan.budget_bytes)}"
    sent = plan.sent_per_step
    lines = [
        f"a rank holds {size_text(plan.bytes_per_rank)} of tables: weights {size_text(weights)}, "
        f"optimizer {size_text(state)}; {limit}",
    ]
    if plan.host_bytes_per_rank:
        lines.append(f"and {size_text(plan.host_bytes_per_rank)} in the host's memory")
    if plan.num_ranks > 1:
        parts = (
            f"ids {size_text(sent.ids)}, rows {size_text(sent.rows)}, sums {size_text(sent.sums)}"
        )
        speed = f"{plan.costs.bytes_per_s / 1e9:,.2f} GB/s"
        lines += [
            f"a rank sends {size_text(sent.total)} a step: {parts}",
            f"predicted exchange {plan.exchange_s * 1e3:,.2f} ms a step, at {speed} and "
            f"{plan.costs.latency_s * 1e6:,.0f} us a collective",
        ]
    return lines


def _reasons(plan: ShardingPlan) -> list[str]:
    named: dict[tuple[str, str], list[str]] = {}
    for table in plan.tables:
        named.setdefault((table.placement, table.why), []).append(table.name)
    reasons = [
        f"{placement}: {why} ({', '.join(names)})" for (placement, why), names in named.items()
    ]
    shared = [
        f"{table.name}: one table for the columns {', '.join(table.columns)}"
        for table in plan.tables
        if len(table.columns) > 1
    ]
    return reasons + shared
