"""Updates of vocabularies by later rows, and how columns have drifted since the fit."""
