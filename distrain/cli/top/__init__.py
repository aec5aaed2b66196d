"""`distrain top`: a scheduler's jobs on the terminal, as they run."""
