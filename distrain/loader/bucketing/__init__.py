"""Full shuffles: rows go to buckets by their places on the line, and from there to batches."""

from distrain.loader.bucketing.bucket_file import BucketFile
from distrain.loader.bucketing.buckets import Buckets, bucket_rows_bound, use_buckets
from distrain.loader.bucketing.first_pass import FirstPass
from distrain.loader.bucketing.store import (
    Slabs,
    staged_bytes,
    stored_row_bytes,
)

__all__ = [
    "BucketFile",
    "Buckets",
    "FirstPass",
    "Slabs",
    "bucket_rows_bound",
    "staged_bytes",
    "stored_row_bytes",
    "use_buckets",
]
