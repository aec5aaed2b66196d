"""Tables described by a features document: read, checked and staged for the workflow."""
