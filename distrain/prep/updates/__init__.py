"""Updates vocabularies with later rows, and finds columns that have drifted since the fit."""
