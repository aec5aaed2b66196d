"""Which rows each step trained on, recorded and checked."""

from distrain.train.audit.audit import audit_run as audit_run
from distrain.train.audit.audit_log import AuditLog as AuditLog
