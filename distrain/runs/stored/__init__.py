"""Reads run folders in object stores."""
