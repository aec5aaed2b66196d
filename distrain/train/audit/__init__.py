"""Which rows each step trained on, recorded and checked."""

from distrain.train.audit.audit import audit_run
from distrain.train.audit.audit_log import AuditLog

__all__ = ["AuditLog", "audit_run"]
