"""What a bench measures on a cluster's workers, through Dask."""
