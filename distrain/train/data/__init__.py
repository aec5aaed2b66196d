"""A rank's inputs: tables, schema, fields and loaders."""
