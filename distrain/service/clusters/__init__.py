"""The launchers of the service's clusters, and the client of their schedulers."""
