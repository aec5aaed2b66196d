"""What `distrain serve` runs: preparations, the API's server, and the reconciler beside it."""
