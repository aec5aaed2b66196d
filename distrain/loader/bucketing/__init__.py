"""Full shuffles: rows go to buckets by their places on the line, and from there to batches."""

from distrain.loader.bucketing.first_pass import (
    Buckets as Buckets,
    FirstPass as FirstPass,
    bucket_rows_bound as bucket_rows_bound,
    use_buckets as use_buckets,
)
from distrain.loader.bucketing.store import (
    Slabs as Slabs,
    staged_bytes as staged_bytes,
    stored_row_bytes as stored_row_bytes,
)
