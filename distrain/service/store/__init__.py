"""The service's database: jobs, tokens, leases and events, in short transactions."""

from distrain.service.store.auditing import AuditRow, Deed, Webhook
from distrain.service.store.errors import (
    DatabaseInUse,
    KeyInFlight,
    KeyReused,
    LeaseLost,
    NotNow,
    NotThere,
    QuotaExceeded,
    ReadOnly,
    RevisionDiffers,
    SchemaDiffers,
    StorageFull,
    StoreError,
    Unstorable,
)
from distrain.service.store.listing import JobFilter
from distrain.service.store.people import Project, Token
from distrain.service.store.recording import ClusterRow, JobChange
from distrain.service.store.rows import Attempt
from distrain.service.store.store import Store, migrate, open_store, restore

__all__ = [
    "ReadOnly",
    "StorageFull",
    "Store",
    "migrate",
    "open_store",
    "restore",
    "Attempt",
    "AuditRow",
    "ClusterRow",
    "Deed",
    "JobChange",
    "JobFilter",
    "Project",
    "Token",
    "Webhook",
    "DatabaseInUse",
    "KeyInFlight",
    "KeyReused",
    "LeaseLost",
    "NotNow",
    "NotThere",
    "QuotaExceeded",
    "RevisionDiffers",
    "SchemaDiffers",
    "StoreError",
    "Unstorable",
]
