"""What a job will need before it starts: memory, placements of tables, steps."""
