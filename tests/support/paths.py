"""Folders of the repository that tests read."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS, BENCH, DOCS = ROOT / "tests", ROOT / "bench", ROOT / "docs"
GOLDEN, SUPPORT = TESTS / "golden", TESTS / "support"
