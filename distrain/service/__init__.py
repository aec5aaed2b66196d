"""Jobs of many users on many clusters: kept in a database, reconciled, served over HTTP."""
