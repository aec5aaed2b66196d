"""Reads run directories in object stores."""
