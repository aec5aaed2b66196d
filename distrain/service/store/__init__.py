"""The service's database: jobs, tokens, leases and events, in short transactions."""
