"""Can distrain work here? Checks that say how to mend what they find."""

from distrain.doctor.checks import (
    Check,
    Verdict,
    check_machine,
    check_scheduler,
    check_write_access,
)

__all__ = ["Check", "Verdict", "check_machine", "check_scheduler", "check_write_access"]
