"""Where the rows of each table live: sizes, costs, and the plan that fits memory."""

from distrain.embeddings.sharding.calibration import (
    calibrate as calibrate,
    least_over_ranks as least_over_ranks,
)
from distrain.embeddings.sharding.costs import (
    DEFAULT_COSTS as DEFAULT_COSTS,
    Costs as Costs,
    expected_unique as expected_unique,
    sent_bytes as sent_bytes,
    split_bytes as split_bytes,
)
from distrain.embeddings.sharding.plan import ShardingPlan as ShardingPlan, explain as explain
from distrain.embeddings.sharding.planner import plan_placements as plan_placements
from distrain.embeddings.sharding.table_bytes import (
    WEIGHT_BYTES as WEIGHT_BYTES,
    table_sizes as table_sizes,
    with_slack as with_slack,
)
