"""Brings clusters to what the database wants of them, and the database to what they have."""

from distrain.service.reconcile.reconciler import Reconciler, run_reconciler

__all__ = ["Reconciler", "run_reconciler"]
