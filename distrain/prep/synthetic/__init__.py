"""Generated Criteo-shaped data of any size whose best reachable AUC is known."""
