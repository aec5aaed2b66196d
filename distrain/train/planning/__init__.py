"""Predicts a job's needs before it starts: memory, placements of tables, steps."""
