"""PyTorch's own databases of modules and optimizers, which its wheel holds for its tests."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
import unittest
import warnings
from typing import Any


def entries(module: str, name: str) -> list[Any]:
    """The database torch.testing._internal.<module>.<name>; empty where PyTorch isn't installed."""
    if importlib.util.find_spec("torch") is None:
        return []
    # find_spec refuses a stand-in that is there already: it has no spec.
    if "expecttest" not in sys.modules and importlib.util.find_spec("expecttest") is None:
        # PyTorch's test library derives a class from one of this package. The databases don't.
        stand_in: Any = types.ModuleType("expecttest")
        stand_in.TestCase = unittest.TestCase
        sys.modules["expecttest"] = stand_in
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = importlib.import_module(f"torch.testing._internal.{module}")
    return list(getattr(found, name))
