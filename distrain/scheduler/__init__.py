"""All that runs in the Dask scheduler: the coordinator of jobs, HTTP routes, dashboard page."""
