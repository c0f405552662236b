"""torch.backends.mha: the fast path of nn.TransformerEncoderLayer. Here every path is as fast."""

from __future__ import annotations

_enabled = True


def get_fastpath_enabled() -> bool:
    return _enabled


def set_fastpath_enabled(value: bool) -> None:
    """Off, inference of nn.TransformerEncoder computes what follows the end of a sequence, too."""
    global _enabled
    _enabled = value
