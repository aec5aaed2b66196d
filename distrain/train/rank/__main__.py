"""`python -m distrain.train.rank EVENT_FD SUPERVISOR_PID`: the program that a supervisor starts."""

from distrain.train.rank.process import main

main()
