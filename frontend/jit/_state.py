"""Whether programs are scripted and traced. With PYTORCH_JIT=0 they stay what they are, so that a
debugger steps through them."""

from __future__ import annotations

import os

_SAID = {**dict.fromkeys(("1", "true", "yes"), True), **dict.fromkeys(("0", "false", "no"), False)}


class EnabledProxy:
    """A switch that is true while it is on."""

    def __init__(self) -> None:
        said = os.environ.get("PYTORCH_JIT", "1").lower().removesuffix("v")
        if said not in _SAID:
            raise ValueError(f"PYTORCH_JIT: expected 0 or 1, got {said!r}")
        self.enabled = _SAID[said]

    def __bool__(self) -> bool:
        return self.enabled


_enabled = EnabledProxy()


def disable() -> None:
    """From now on `script` and `trace` give back what they are given."""
    _enabled.enabled = False


def enable() -> None:
    """From now on `script` and `trace` make programs."""
    _enabled.enabled = True
