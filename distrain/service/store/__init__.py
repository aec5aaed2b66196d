"""The service's database: jobs, tokens, leases and events, in short transactions."""

from distrain.service.store.auditing import Deed as Deed, Webhook as Webhook
from distrain.service.store.errors import (
    KeyInFlight as KeyInFlight,
    KeyReused as KeyReused,
    LeaseLost as LeaseLost,
    NotNow as NotNow,
    NotThere as NotThere,
    QuotaExceeded as QuotaExceeded,
    ReadOnly as ReadOnly,
    RevisionDiffers as RevisionDiffers,
    StorageFull as StorageFull,
    Unstorable as Unstorable,
)
from distrain.service.store.listing import JobFilter as JobFilter, Worked as Worked
from distrain.service.store.people import Project as Project, Token as Token
from distrain.service.store.recording import JobChange as JobChange
from distrain.service.store.rows import Attempt as Attempt
from distrain.service.store.store import (
    Store as Store,
    migrate as migrate,
    open_store as open_store,
    restore as restore,
)
