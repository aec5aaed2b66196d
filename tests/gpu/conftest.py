"""What a process that trains here in many tests must be told once."""

import os

# torch asks for it once a process, at the first matrix product. Ranks set it themselves; here a
# test that multiplies before any rank did would make all later ones warn.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
