"""torch.nn.attention: the choice of attention kernels, and attention of packed sequences.

A device has one way to compute attention: by tiles where there is a template, else from primitives.
So a choice of backends is checked and can be queried, but changes no result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum

from ...backends.cuda import _sdp_enabled
from . import varlen as varlen

__all__ = ["SDPBackend", "sdpa_kernel"]


class SDPBackend(IntEnum):
    """PyTorch's ways to compute scaled_dot_product_attention."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


_FLAGS = {
    "math": SDPBackend.MATH,
    "flash": SDPBackend.FLASH_ATTENTION,
    "mem_efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "overrideable": SDPBackend.OVERRIDEABLE,
}


@contextmanager
def sdpa_kernel(
    backends: Sequence[SDPBackend] | SDPBackend, set_priority: bool = False
) -> Iterator[dict[str, object]]:
    """Let `torch.backends.cuda.flash_sdp_enabled` and the like report `backends` inside the block.

    No result changes: see the module's docstring.
    """
    if not isinstance(backends, (list, SDPBackend)):
        raise AssertionError(
            "Backend must be an instance of SDPBackend or a list of SDPBackend instances, got "
            f"{type(backends).__name__}"
        )
    chosen = [backends] if isinstance(backends, SDPBackend) else backends
    before = dict(_sdp_enabled)
    _sdp_enabled.update({name: backend in chosen for name, backend in _FLAGS.items()})
    try:
        yield {}
    finally:
        _sdp_enabled.update(before)


# Implementations of flash attention that PyTorch may be given: a device has its own here.


def list_flash_attention_impls() -> list[str]:
    """None can be chosen."""
    return []


def current_flash_attention_impl() -> str | None:
    """None: the device's own."""
    return None


def register_flash_attention_impl(impl: str, *, register_fn: object) -> None:
    """Refused: kernels of attention are written by the framework."""
    raise NotImplementedError(
        f"register_flash_attention_impl({impl!r}): tilewright writes its own kernels of attention"
    )


def activate_flash_attention_impl(impl: str) -> None:
    """ValueError: none is registered."""
    raise ValueError(f"Unknown flash attention impl {impl!r}; available: none")


def restore_flash_attention_impl() -> None:
    """The device's own is in use."""


WARN_FOR_UNFUSED_KERNELS = False
