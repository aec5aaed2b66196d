"""Updates of vocabularies by later rows, and the drift of columns since the fit."""
