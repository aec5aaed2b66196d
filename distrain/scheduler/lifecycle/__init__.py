"""The job state machine: pure functions of states, events and time."""
