"""The page of a scheduler that was started without the preload, in a browser."""

from pathlib import Path

import pytest
from bare_scheduler import bare_scheduler
from browser_tab import Tab

from distrain.door.attach import ensure_door
from distrain.scheduler.plugin import ensure_coordinator


@pytest.mark.slow
def test_a_page_added_to_a_running_scheduler_is_reached_from_dasks_own(
    tab: Tab, tmp_path: Path
) -> None:
    with bare_scheduler(tmp_path) as scheduler:
        ensure_coordinator(scheduler.client)
        ensure_door(scheduler.client)
        tab.open(scheduler.url + "/status")
        tab.page.get_by_role("link", name="Training").click()
        tab.page.wait_for_url("**/training")
        tab.page.get_by_text(scheduler.client.scheduler.address).wait_for()
        tab.open(scheduler.url + "/individual-distrain-jobs")
        tab.leave()
