"""The command line: commands with options, which print text or JSON."""
