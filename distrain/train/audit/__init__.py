"""Which rows each step trained on, recorded and checked."""

from distrain.train.audit.audit import AuditLog as AuditLog, audit_run as audit_run
