"""A run's fitted workflow, opened once by each process."""

from __future__ import annotations

import functools
import threading

from distrain.etl.lookups.index import Lookups
from distrain.etl.workflow import Workflow
from distrain.vocabulary import CATEGORIES

_LOAD_LOCK = threading.Lock()


def load_workflow(folder: str, lookups: Lookups) -> Workflow:
    with _LOAD_LOCK:  # or each thread of a worker would read the vocabularies
        return _load_workflow_once(folder, lookups)


@functools.lru_cache(maxsize=1)
def _load_workflow_once(folder: str, lookups: Lookups) -> Workflow:
    # Safe to keep: every run has its own folder.
    return Workflow.load(folder, functools.partial(lookups.vocabulary, f"{folder}/{CATEGORIES}"))


def forget_workflow() -> None:
    with _LOAD_LOCK:
        _load_workflow_once.cache_clear()
