"""Submits, follows and cancels jobs of a service over HTTP; needs no torch, no Dask."""

from distrain.client.client import Client as Client
from distrain.client.credentials import (
    CA_VARIABLE as CA_VARIABLE,
    SERVER_VARIABLE as SERVER_VARIABLE,
    TOKEN_VARIABLE as TOKEN_VARIABLE,
    Address as Address,
    Login as Login,
    find_login as find_login,
    parse_address as parse_address,
    read_logins as read_logins,
    servers_file as servers_file,
    state_folder as state_folder,
    store_login as store_login,
)
from distrain.client.documents import (
    Artifact as Artifact,
    Cluster as Cluster,
    Event as Event,
    Job as Job,
    Me as Me,
    Records as Records,
    Token as Token,
    Validation as Validation,
    parse_time as parse_time,
)
from distrain.client.errors import (
    NotAuthorised as NotAuthorised,
    NotFinished as NotFinished,
    NotFound as NotFound,
    Pointer as Pointer,
    RequestRefused as RequestRefused,
    ServiceError as ServiceError,
    ServiceUnavailable as ServiceUnavailable,
    WaitTimedOut as WaitTimedOut,
)
from distrain.client.job_calls import submission as submission
from distrain.client.retries import Retries as Retries
