"""The HTTP API v1: routes, documents, errors, streams."""

from distrain.service.api.answers import answers as answers
from distrain.service.api.app import make_app as make_app, openapi_document as openapi_document
from distrain.service.api.dependencies import (
    Caller as Caller,
    Counted as Counted,
    Parts as Parts,
    Service as Service,
    allow as allow,
    audit_note as audit_note,
    require as require,
    seen_job as seen_job,
)
from distrain.service.api.documents import JobDocument as JobDocument
from distrain.service.api.problems import CODES as CODES, Problem as Problem, not_found as not_found
from distrain.service.api.showing import contacts as contacts, job_document as job_document
from distrain.service.decide import utc as utc
