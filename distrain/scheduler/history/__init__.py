"""Jobs and their histories as JSON, in bounded memory."""
