"""A Python client of the HTTP API of services and schedulers; needs neither torch nor Dask."""

from distrain.client.client import Client as Client
from distrain.client.errors import (
    NotAuthorised as NotAuthorised,
    NotFinished as NotFinished,
    NotFound as NotFound,
    RequestRefused as RequestRefused,
    ServiceError as ServiceError,
    ServiceUnavailable as ServiceUnavailable,
    WaitTimedOut as WaitTimedOut,
)
from distrain.client.retries import Retries as Retries
from distrain.jobs.api_answers import (
    Artifact as Artifact,
    Cluster as Cluster,
    Event as Event,
    Job as Job,
    Me as Me,
    Records as Records,
    Token as Token,
    Validation as Validation,
)
