"""The HTTP API v1: routes, documents, errors, streams."""

from distrain.service.api.app import make_app as make_app, openapi_document as openapi_document
from distrain.service.api.dependencies import (
    ApiCall as ApiCall,
    ApiParts as ApiParts,
    Call as Call,
    Service as Service,
)
from distrain.service.api.documents import (
    JobDocument as JobDocument,
    contacts as contacts,
    job_document as job_document,
)
from distrain.service.api.problems import CODES as CODES, Problem as Problem, not_found as not_found
from distrain.service.api.routes import (
    USAGE_KEYS as USAGE_KEYS,
    UsageKey as UsageKey,
    used as used,
)
from distrain.service.decide import utc as utc
