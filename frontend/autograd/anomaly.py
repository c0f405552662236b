"""Anomaly mode: backward passes check each gradient, and name the call that made a NaN."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np

from tilewright.ir import ops
from tilewright.ir.node import Node, format_location, reachable

from .calls import is_users, name_of


class _State:
    """enabled: whether the mode is on. check_nan: whether it checks gradients for NaN."""

    enabled = False
    check_nan = True


state = _State()


def is_anomaly_enabled() -> bool:
    """Whether backward passes tell which call failed."""
    return state.enabled


def is_anomaly_check_nan_enabled() -> bool:
    """Whether backward passes look for NaN in anomaly mode."""
    return state.check_nan


def set_anomaly_enabled(mode: bool, check_nan: bool = True) -> None:
    """Turn anomaly mode on or off; see `set_detect_anomaly`."""
    state.enabled, state.check_nan = bool(mode), bool(check_nan)


def looks() -> bool:
    """Whether backward passes check their gradients now."""
    return state.enabled and state.check_nan


class set_detect_anomaly:
    """Turn anomaly mode on or off at once; as a context manager, until the block ends.

    check_nan: raise a RuntimeError for a gradient with a NaN, which names the call whose derivative
    made it. Each gradient is computed and read by itself for that: use it only to find errors.
    """

    def __init__(self, mode: bool, check_nan: bool = True):
        self.prev = state.enabled, state.check_nan
        set_anomaly_enabled(mode, check_nan)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        state.enabled, state.check_nan = self.prev


class detect_anomaly(set_detect_anomaly):
    """Anomaly mode inside of the block; see `set_detect_anomaly`."""

    def __init__(self, check_nan: bool = True):
        super().__init__(state.enabled, state.check_nan)
        self.check_nan = check_nan
        warnings.warn(
            "Anomaly Detection has been enabled. This mode will increase the runtime and should "
            "only be enabled for debugging.",
            stacklevel=2,
        )

    def __enter__(self) -> None:
        self.prev = state.enabled, state.check_nan
        set_anomaly_enabled(True, self.check_nan)


def watches(seeds: Iterable[Node]) -> dict[Node, list[dict[int, Any]]]:
    """Hooks for all nodes that the backward pass of `seeds` goes through."""
    users: dict[Node, list[tuple[Node, int]]] = {}
    nodes = [n for n in reachable(seeds) if n.requires_grad]
    # A user-written derivative stands for its call, but the results know its name.
    named = {n.operands[0]: n for n in nodes if is_users(n)}
    for node in nodes:
        for i, operand in enumerate(node.operands):
            if operand.requires_grad and not is_users(node):
                users.setdefault(operand, []).append((named.get(node, node), i))
    return {node: [{0: _Look(calls)}] for node, calls in users.items()}


class _Look:
    """A hook that raises where a gradient has a NaN. calls: the nodes that used its tensor, and the
    operand that it was."""

    def __init__(self, calls: list[tuple[Node, int]]):
        self.calls = calls

    def __call__(self, grad: Any) -> None:
        if not grad.dtype.is_floating_point or not np.isnan(grad.detach().float()._array()).any():
            return
        found = [(n, i) for n, i in self.calls if n.op is not ops.variable] or self.calls
        named = [
            f"Function '{name_of(n)}' (recorded at {format_location(n.loc)}) returned nan "
            f"values in its {i}th output."
            for n, i in found
        ]
        raise RuntimeError(" Or: ".join(named))
