"""Decodes pages of flat columns of local files, in C, where that is faster than Arrow."""
