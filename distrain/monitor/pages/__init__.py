"""The Training page in Dask's dashboard, and single figures of it."""

from distrain.monitor.pages.dask_dashboard import (
    INDIVIDUAL_PREFIX,
    PAGE_URL,
    add_pages,
    install_pages,
)

__all__ = ["INDIVIDUAL_PREFIX", "PAGE_URL", "add_pages", "install_pages"]
