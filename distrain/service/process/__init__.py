"""The parts of `distrain serve`: preparations, the API's server, and the reconciler."""
