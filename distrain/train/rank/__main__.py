"""`python -m distrain.train.rank EVENT_FD SUPERVISOR_PID`: what a supervisor starts."""

from distrain.train.rank.process import main

main()
