"""The state machine of jobs: state, events and time as input, no I/O."""
