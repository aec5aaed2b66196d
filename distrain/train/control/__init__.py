"""Sets up a rank's process, and lets the ranks agree on the step at which they save or stop."""
