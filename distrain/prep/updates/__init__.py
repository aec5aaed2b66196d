"""Updates vocabularies with later rows, and records the files of a workflow's rows."""
