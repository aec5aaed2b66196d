"""Brings clusters to what the database wants of them, and the database to what they have."""

from distrain.service.reconcile.reconciler import run_reconciler as run_reconciler
