"""Layers without the initialization of their parameters."""

from __future__ import annotations

import inspect
from typing import Any

from tilewright.ir.location import at_user_line

from ...autograd import no_grad
from ..module import Module


def skip_init(module_cls: type[Module], *args: Any, **kwargs: Any) -> Module:
    """module_cls(*args, **kwargs); the values of its parameters are not to be relied on."""
    if not (isinstance(module_cls, type) and issubclass(module_cls, Module)):
        raise RuntimeError(f"Expected a Module; got {module_cls}{at_user_line()}")
    if "device" not in inspect.signature(module_cls).parameters:
        raise RuntimeError(
            f"Module must support a 'device' arg to skip initialization{at_user_line()}"
        )
    with no_grad():
        return module_cls(*args, **kwargs)
