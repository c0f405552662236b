"""Determinism. It needs no switch: on any device every run gives the same bits.

The settings here are stored for programs that read them, and change nothing.
"""

from __future__ import annotations

from tilewright.ir.location import at_user_line

_MODES = ("default", "warn", "error")
_mode = 0


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    set_deterministic_debug_mode((1 if warn_only else 2) if mode else 0)


def are_deterministic_algorithms_enabled() -> bool:
    return _mode > 0


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    return _mode == 1


def get_deterministic_debug_mode() -> int:
    """The mode: 0, 1 or 2 to allow, warn of, or refuse nondeterministic operations."""
    return _mode


def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    global _mode
    found = _MODES.index(debug_mode) if debug_mode in _MODES else debug_mode
    if found not in (0, 1, 2):
        raise RuntimeError(
            "invalid value of debug_mode, expected 0, 1, 2 or default, warn, error, got "
            f"{debug_mode!r}{at_user_line()}"
        )
    _mode = int(found)
