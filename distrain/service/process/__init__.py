"""The processes of `distrain serve`: the API, the reconciler, and their supervisor."""
