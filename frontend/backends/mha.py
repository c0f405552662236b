"""torch.backends.mha: the fast path of nn.TransformerEncoderLayer, which every path is here."""

from __future__ import annotations

_enabled = True


def get_fastpath_enabled() -> bool:
    return _enabled


def set_fastpath_enabled(value: bool) -> None:
    """The switch can be set and read, and changes nothing."""
    global _enabled
    _enabled = value
