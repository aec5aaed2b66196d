"""New jobs: each with its spec, tags, key and event at once, within the quota."""

from distrain.service.store.submitting.keys import found as found, no_such_job as no_such_job
from distrain.service.store.submitting.taking import (
    WITH_WORKERS as WITH_WORKERS,
    Submitting as Submitting,
    put_tags as put_tags,
    waiting as waiting,
)
