"""What a scheduler shows of its jobs."""
