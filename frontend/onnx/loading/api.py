"""PyTorch's functions, most of which are made from tables that type checkers don't see into."""

from __future__ import annotations

from typing import Any

from ... import functions
from ...nn import functional

f: Any = functions
F: Any = functional
