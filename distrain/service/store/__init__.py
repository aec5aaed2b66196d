"""The service's database: jobs, tokens and events, in short transactions."""
