"""`distrain top`: shows running jobs on the terminal."""
