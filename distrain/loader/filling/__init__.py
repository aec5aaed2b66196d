"""Decides to which place of which batch each row goes, and writes the row there."""
