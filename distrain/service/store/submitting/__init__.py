"""Jobs that come in: each with its spec, tags, key and event at once, within the quota."""

from distrain.service.store.submitting.keys import found, no_such_job
from distrain.service.store.submitting.taking import (
    WITH_WORKERS,
    Submitting,
    put_tags,
    waiting,
)

__all__ = ["WITH_WORKERS", "Submitting", "found", "no_such_job", "put_tags", "waiting"]
