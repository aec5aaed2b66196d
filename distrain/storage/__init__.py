"""Files and folders, local or remote; outputs appear complete or not at all."""
