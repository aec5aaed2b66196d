"""Commands that read run folders."""
