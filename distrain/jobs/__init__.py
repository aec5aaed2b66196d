"""Values about jobs that travel between processes: spec, states, reasons, events, status."""
