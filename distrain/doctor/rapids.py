"""The check that `rapids doctor` finds by its entry point `rapids_doctor_check`."""

from distrain.checks import Verdict
from distrain.doctor.machine import check_machine


def check_for_rapids(verbose: bool = False, **_: object) -> str:
    """Distrain and its packages are installed and fit each other.

    Returns:
        The number of checks; with `verbose` each check's result.
    """
    checks = list(check_machine())
    failed = [check for check in checks if check.verdict is Verdict.FAIL]
    if failed:
        raise ValueError("; ".join(f"{c.name}: {c.detail}. {c.mend}" for c in failed))
    details = "\n".join(f"{check.name}: {check.detail}" for check in checks)
    return details if verbose else f"{len(checks)} checks of distrain passed"
