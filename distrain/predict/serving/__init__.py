"""Exports of models that score ids or raw rows without distrain, and deltas between exports."""
