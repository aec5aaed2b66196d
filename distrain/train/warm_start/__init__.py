"""A new run takes its first weights from another: what fits where, and the copying.

The place in the data is not taken: the run begins at its first step. Optimizers' state is, if asked
for.
"""
