"""Divides text files into ranges, one for each task, and reads ranges in pieces of whole lines."""
