"""A small cluster in this process."""

from threads_as_cluster import client as client, cluster_here as cluster_here
