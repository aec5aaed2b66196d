"""The service's streams: logs, events, metrics, files, and its own health."""

from distrain.service.api.streams.artifacts import (
    NoSuchBytes as NoSuchBytes,
    chunks_of as chunks_of,
    headers_of as headers_of,
    is_named as is_named,
    list_files as list_files,
    open_artifact as open_artifact,
    wanted_range as wanted_range,
)
from distrain.service.api.streams.event_feed import EventFeed as EventFeed, FellBehind as FellBehind
from distrain.service.api.streams.figures import (
    Counting as Counting,
    of_database as of_database,
    of_health as of_health,
    of_places as of_places,
)
from distrain.service.api.streams.job_logs import (
    LogPart as LogPart,
    LogPlace as LogPlace,
    SharedLog as SharedLog,
    exists as exists,
    last_attempt as last_attempt,
    read as read,
    read_tail as read_tail,
)
from distrain.service.api.streams.live import (
    PING as PING,
    EventStream as EventStream,
    LiveResponse as LiveResponse,
    frame as frame,
)
from distrain.service.api.streams.readiness import (
    DATABASE_S as DATABASE_S,
    NoAnswer as NoAnswer,
    reconcile_trouble as reconcile_trouble,
)
from distrain.service.api.streams.state import (
    PLAIN as PLAIN,
    SAFE as SAFE,
    ApiStreams as ApiStreams,
    streams_of as streams_of,
)
