"""Where the rows of each table live: sizes, costs, and the plan that fits memory."""

from distrain.embeddings.sharding.calibration import calibrate, least_over_ranks
from distrain.embeddings.sharding.costs import COLLECTIVES, DEFAULT_COSTS, Costs, sent_bytes
from distrain.embeddings.sharding.plan import ShardingPlan, explain
from distrain.embeddings.sharding.planner import plan_placements
from distrain.embeddings.sharding.table_bytes import WEIGHT_BYTES, table_sizes

__all__ = [
    "COLLECTIVES",
    "Costs",
    "DEFAULT_COSTS",
    "ShardingPlan",
    "WEIGHT_BYTES",
    "calibrate",
    "explain",
    "least_over_ranks",
    "plan_placements",
    "sent_bytes",
    "table_sizes",
]
