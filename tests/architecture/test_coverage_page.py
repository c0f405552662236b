"""docs/coverage.md lists what is missing, and nothing that is there."""

from __future__ import annotations

import re

import pytest
from conftest import load_script
from paths import ROOT


@pytest.mark.filterwarnings("ignore")
def test_what_the_page_lists_is_missing() -> None:
    tool = load_script(ROOT / "tools" / "coverage.py")
    listed = re.findall(r"- `(torch\.[^`]*)`", tool.PAGE.read_text(encoding="utf-8"))
    there = [name for name in listed if tool.is_there(name)]
    assert len(listed) > 100 and not there, "write the page anew: python tools/coverage.py"
