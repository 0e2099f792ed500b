from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright import sync_api as browsers

from html_page import CHROMIUM


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    browsers.expect.set_options(timeout=30_000)
    with browsers.sync_playwright() as play:
        opened = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()
