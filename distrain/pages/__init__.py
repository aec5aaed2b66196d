"""The Training page in Dask's dashboard, and single figures of it."""

from distrain.pages.dask_dashboard import (
    add_pages as add_pages,
    install_pages as install_pages,
)
from distrain.pages.watching import DOCUMENTS as DOCUMENTS
