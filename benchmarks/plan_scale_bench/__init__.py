"""The parts of `plan_scale.py`: hosts with capped links, ranks on them, machine files, figures."""
