"""A rank's inputs: tables, schema, vocabularies and loaders."""
