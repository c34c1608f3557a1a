"""Chromium for tests of pages."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, sync_playwright

PAGE_TIMEOUT = 300_000
"""Milliseconds; only a page that hangs takes this long, however busy the machine is."""
_FEATURES = (
    # Pages of the address bar's list, which every new window loads: more than half of the CPU time
    # of a short test.
    "WebUIOmniboxPopup", "WebUIOmniboxAimPopup",
    # This list replaces Playwright's, which is:
    "AimEnabled", "AvoidCorsURLLoaderRestartOnRedirect", "AvoidUnnecessaryBeforeUnloadCheckSync",
    "DestroyProfileOnBrowserClose", "HttpsFirstBalancedModeAutoEnable", "HttpsUpgrades",
    "LensOverlay", "MediaRouter", "NetworkTimeServiceQuerying", "OptimizationHints", "PaintHolding",
    "PreconnectToSearch", "ThirdPartyStoragePartitioning",
)  # fmt: skip
_ARGUMENTS = ("--no-sandbox", f"--disable-features={','.join(_FEATURES)}")


@contextmanager
def launched_chromium(*arguments: str) -> Iterator[Browser]:
    """Run the installed Chromium, with more arguments perhaps."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.fail("the page is tested in Chromium: apt-get install chromium")
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(
            executable_path=chromium, args=[*_ARGUMENTS, *arguments]
        )
        yield launched
        launched.close()
