"""A cluster that somebody else starts and ends."""

from distrain.errors import ClusterError
from distrain.service.clusters.launcher import Found, LauncherState
from distrain.service.settings import ClusterProfile


class AddressLauncher:
    """A cluster at the address of the configuration, which the service neither starts nor ends."""

    def __init__(self, name: str, profile: ClusterProfile):
        self._name, self._profile = name, profile

    def find(self) -> Found | None:
        """The configured address, with the token in the file as it is now."""
        profile = self._profile
        assert profile.url is not None  # settings see to it
        if profile.token_file is None:
            return Found(profile.url)
        try:
            # ASCII: a header holds nothing else
            return Found(profile.url, profile.token_file.read_text(encoding="ascii").strip())
        except (OSError, ValueError) as error:
            raise ClusterError(
                f"cannot read the token of the cluster {self._name}: {error}",
                where={"token_file": str(profile.token_file)},
                hint="It holds what DISTRAIN_DASHBOARD_TOKEN is to the scheduler, and is readable "
                "for the service.",
            ) from error

    def start(self, num_workers: int | None = None) -> None:
        """Nothing: it is started elsewhere."""

    def stop(self) -> None:
        """Nothing: it is ended elsewhere."""

    def state(self) -> LauncherState:
        return LauncherState("running", "started elsewhere")
