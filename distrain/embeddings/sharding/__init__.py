"""Where the rows of each table live: sizes, costs, and the plan that fits memory."""

from distrain.embeddings.sharding.calibration import calibrate, least_over_ranks
from distrain.embeddings.sharding.costs import (
    COLLECTIVES,
    DEFAULT_COSTS,
    Costs,
    Sent,
    expected_unique,
    sent_bytes,
)
from distrain.embeddings.sharding.links import Links, Stage, default_links, split_bytes, stages_of
from distrain.embeddings.sharding.plan import ShardingPlan, explain
from distrain.embeddings.sharding.planner import plan_placements
from distrain.embeddings.sharding.room import with_slack
from distrain.embeddings.sharding.table_bytes import WEIGHT_BYTES, table_sizes

__all__ = [
    "COLLECTIVES",
    "Costs",
    "DEFAULT_COSTS",
    "Links",
    "Sent",
    "ShardingPlan",
    "Stage",
    "WEIGHT_BYTES",
    "calibrate",
    "default_links",
    "expected_unique",
    "explain",
    "least_over_ranks",
    "plan_placements",
    "sent_bytes",
    "split_bytes",
    "stages_of",
    "table_sizes",
    "with_slack",
]
