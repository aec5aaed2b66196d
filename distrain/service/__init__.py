"""Jobs of many users on many clusters: API, database, reconciler, web page."""
