"""torch.fx.experimental.proxy_tensor: tracing below the operators, which isn't there."""

from __future__ import annotations

from typing import Any, NoReturn

from tilewright.ir.location import at_user_line

__all__ = ["get_proxy_mode", "is_traceable", "make_fx"]


def get_proxy_mode() -> None:
    """None: no tensors are proxies."""


def is_traceable(value: Any) -> bool:
    return False


def make_fx(f: Any, *args: Any, **options: Any) -> NoReturn:
    """Refused: PyTorch's graphs of ATen's operators have no counterpart here."""
    raise NotImplementedError(
        "torch.fx.experimental.proxy_tensor.make_fx: tilewright has no ATen operators. "
        f"torch.fx.symbolic_trace traces modules and functions{at_user_line()}"
    )
