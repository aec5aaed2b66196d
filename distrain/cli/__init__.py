"""The command line: commands, which take options and print text or JSON."""
