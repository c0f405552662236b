"""PyTorch's functions. Type checkers can't see most of them, as they are made from tables."""

from __future__ import annotations

from typing import Any

from ... import publish
from ...nn import functional

f: Any = publish
F: Any = functional
