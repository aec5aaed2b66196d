"""A browser's tab, as tests of other pages have it."""

from browser_fixtures import browser, tab

__all__ = ["browser", "tab"]
