"""Start of ranks, choice of devices, and agreement on the step at which they save or stop."""
