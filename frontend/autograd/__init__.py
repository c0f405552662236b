"""Gradients: backward, grad, modes, hooks, user-written derivatives, and their check."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import paths
from . import anomaly, functional, graph, profiler
from . import modes as grad_mode
from .anomaly import detect_anomaly, set_detect_anomaly
from .api import backward, grad
from .function import Function, once_differentiable
from .gradcheck import gradcheck, gradgradcheck
from .hooks import RemovableHandle
from .modes import (
    enable_grad,
    enforce_grad_layout_policy,
    inference_mode,
    is_grad_enabled,
    no_grad,
    set_grad_enabled,
    set_multithreading_enabled,
)
from .profiler import _profiler_enabled  # noqa: F401
from .variable import Variable

__all__ = [
    "Function",
    "RemovableHandle",
    "Variable",
    "anomaly",
    "backward",
    "detect_anomaly",
    "enable_grad",
    "enforce_grad_layout_policy",
    "functional",
    "grad",
    "grad_mode",
    "gradcheck",
    "gradgradcheck",
    "graph",
    "inference_mode",
    "is_grad_enabled",
    "no_grad",
    "once_differentiable",
    "profiler",
    "set_detect_anomaly",
    "set_grad_enabled",
    "set_multithreading_enabled",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        return paths.found(__name__, name)
