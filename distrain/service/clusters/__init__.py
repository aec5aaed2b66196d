"""Where the service's clusters come from, and how their schedulers are asked over HTTP."""

from distrain.service.clusters.choosing import make_launcher
from distrain.service.clusters.launcher import Found, Launcher, LauncherState

__all__ = ["Found", "Launcher", "LauncherState", "make_launcher"]
