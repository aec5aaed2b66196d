"""Records and checks the rows that each step trained on."""
