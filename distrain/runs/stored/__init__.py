"""Run directories in object stores."""
