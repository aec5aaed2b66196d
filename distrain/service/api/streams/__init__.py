"""The service's streams: logs, events, metrics, files, and its own health."""
