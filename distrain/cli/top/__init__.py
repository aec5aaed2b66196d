"""`distrain top`: shows a scheduler's running jobs on the terminal."""
