"""Where the rows of each table live: sizes, costs, and the plan that fits memory."""

from distrain.embeddings.sharding.calibration import (
    calibrate as calibrate,
    least_over_ranks as least_over_ranks,
)
from distrain.embeddings.sharding.costs import (
    COLLECTIVES as COLLECTIVES,
    DEFAULT_COSTS as DEFAULT_COSTS,
    Costs as Costs,
    Sent as Sent,
    expected_unique as expected_unique,
    sent_bytes as sent_bytes,
)
from distrain.embeddings.sharding.links import (
    Links as Links,
    Stage as Stage,
    default_links as default_links,
    split_bytes as split_bytes,
    stages_of as stages_of,
)
from distrain.embeddings.sharding.plan import ShardingPlan as ShardingPlan, explain as explain
from distrain.embeddings.sharding.planner import plan_placements as plan_placements
from distrain.embeddings.sharding.room import with_slack as with_slack
from distrain.embeddings.sharding.table_bytes import (
    WEIGHT_BYTES as WEIGHT_BYTES,
    table_sizes as table_sizes,
)
