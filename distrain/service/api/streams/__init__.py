"""What flows out of the service: logs, events, metrics, files, and how it is."""

from distrain.service.api.streams.artifacts import (
    OpenFile,
    is_named,
    list_files,
    open_artifact,
)
from distrain.service.api.streams.byte_ranges import NoSuchBytes, wanted_range
from distrain.service.api.streams.event_feed import EventFeed, FellBehind
from distrain.service.api.streams.figures import ClusterFigures, Figures, of_database, of_places
from distrain.service.api.streams.following import Pace, Source, Stream
from distrain.service.api.streams.job_logs import (
    LogPart,
    LogPlace,
    exists,
    last_attempt,
    look,
    read,
    read_tail,
)
from distrain.service.api.streams.places import Places, certificate_ends_s, folders_of
from distrain.service.api.streams.readiness import (
    DATABASE_S,
    NoAnswer,
    lag_limit_s,
    lease_ages_s,
    reconcile_lag_s,
)
from distrain.service.api.streams.service_metrics import Counting
from distrain.service.api.streams.shared_logs import SharedLog, SharedLogs
from distrain.service.api.streams.shared_looks import SharedLooks
from distrain.service.api.streams.sse import EventStream, LiveResponse, frame
from distrain.service.api.streams.state import PLAIN, SAFE, Streams, streams_of

__all__ = [
    "ClusterFigures",
    "Counting",
    "DATABASE_S",
    "Figures",
    "NoAnswer",
    "certificate_ends_s",
    "folders_of",
    "lease_ages_s",
    "of_database",
    "of_places",
    "lag_limit_s",
    "reconcile_lag_s",
    "EventFeed",
    "EventStream",
    "FellBehind",
    "LiveResponse",
    "LogPart",
    "LogPlace",
    "NoSuchBytes",
    "OpenFile",
    "PLAIN",
    "Pace",
    "Places",
    "SAFE",
    "SharedLog",
    "SharedLogs",
    "SharedLooks",
    "Source",
    "Stream",
    "Streams",
    "exists",
    "frame",
    "is_named",
    "last_attempt",
    "list_files",
    "look",
    "open_artifact",
    "read",
    "read_tail",
    "streams_of",
    "wanted_range",
]
