"""PyTorch's functions, most of which are made from tables that type checkers don't see into."""

from __future__ import annotations

from typing import Any

from ... import publish
from ...nn import functional

f: Any = publish
F: Any = functional
