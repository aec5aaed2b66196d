"""Submits, follows and cancels jobs of a service over HTTP; needs no torch, no Dask."""

from distrain.client.address import Address, parse_address
from distrain.client.client import Client
from distrain.client.credentials import (
    CA_VARIABLE,
    SERVER_VARIABLE,
    TOKEN_VARIABLE,
    Login,
    find_login,
    read_logins,
    servers_file,
    state_folder,
    store_login,
)
from distrain.client.documents import (
    Artifact,
    Cluster,
    Event,
    Job,
    Me,
    Records,
    Token,
    Validation,
    parse_time,
)
from distrain.client.errors import (
    NotAuthorised,
    NotFinished,
    NotFound,
    Pointer,
    RequestRefused,
    ServiceError,
    ServiceUnavailable,
    WaitTimedOut,
)
from distrain.client.job_calls import submission
from distrain.client.retries import Retries

__all__ = [
    "Address",
    "Artifact",
    "CA_VARIABLE",
    "Client",
    "Cluster",
    "Event",
    "Job",
    "Login",
    "Me",
    "NotAuthorised",
    "NotFinished",
    "NotFound",
    "Pointer",
    "Records",
    "RequestRefused",
    "Retries",
    "SERVER_VARIABLE",
    "ServiceError",
    "ServiceUnavailable",
    "TOKEN_VARIABLE",
    "Token",
    "Validation",
    "WaitTimedOut",
    "find_login",
    "parse_address",
    "parse_time",
    "read_logins",
    "servers_file",
    "state_folder",
    "store_login",
    "submission",
]
