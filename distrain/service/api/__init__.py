"""The HTTP API v1: routes, documents, errors, streams."""

from distrain.service.api.answers import answers
from distrain.service.api.app import make_app, openapi_document
from distrain.service.api.dependencies import (
    Caller,
    Counted,
    Parts,
    Service,
    allow,
    audit_note,
    require,
    seen_job,
)
from distrain.service.api.documents import JobDocument
from distrain.service.api.problems import CODES, Problem, not_found
from distrain.service.api.showing import contacts, job_document
from distrain.service.decide import utc

__all__ = [
    "make_app",
    "openapi_document",
    "answers",
    "Caller",
    "Counted",
    "Parts",
    "Service",
    "allow",
    "audit_note",
    "require",
    "seen_job",
    "JobDocument",
    "utc",
    "CODES",
    "Problem",
    "not_found",
    "contacts",
    "job_document",
]
