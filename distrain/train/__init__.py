"""One rank's life: build, step, evaluate, report. Knows torch and its peers, and no Dask."""
