"""Pages of the docs lead where they say: links, and the files of the sources that they name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from paths import ROOT

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\]\(([^)\s]+)\)")
FOLDERS = "ir|codegen|runtime|frontend|tests|bench|docs|examples|tools"
FILE = re.compile(rf"(?<![\w./])((?:{FOLDERS})/[\w./-]*\.(?:py|pyi|md|svg|json|c))(?![\w.])")
FOLDER = re.compile(rf"`((?:{FOLDERS})/(?:[\w-]+/)*)`")
FENCE = re.compile(r"^```.*?^```", re.M | re.S)


def _missing(page: Path) -> Iterator[str]:
    text = page.read_text()
    for target in LINK.findall(FENCE.sub("", text)):
        name = target.partition("#")[0]
        if name and not re.match(r"\w+:", target) and not (page.parent / name).exists():
            yield target
    for name in (*FILE.findall(text), *FOLDER.findall(text)):
        if not (ROOT / name).exists():
            yield name


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_what_a_page_names_is_there(page: Path) -> None:
    assert list(_missing(page)) == []


def test_headings_that_links_name_are_there() -> None:
    """`page.md#some-heading` is the anchor that GitHub makes of a heading."""
    anchors = {page: _anchors(page.read_text()) for page in PAGES}
    for page in PAGES:
        for target in LINK.findall(FENCE.sub("", page.read_text())):
            name, _, anchor = target.partition("#")
            if anchor and not re.match(r"\w+:", target):
                other = (page.parent / name).resolve() if name else page
                assert anchor in anchors[other], f"{page.relative_to(ROOT)}: {target}"


def _anchors(text: str) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", text), re.M)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}
