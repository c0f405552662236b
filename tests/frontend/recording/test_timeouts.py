"""The error of a timeout, which a signal's handler raises anywhere, reaches the user."""

from __future__ import annotations

import inspect
import os
import sys
from typing import Any

import pytest

import tilewright as tw
from tilewright.ir.interruption import is_interruption


class TimedOut(Exception):
    """Programs define such errors: an `except Exception` of the package would catch them."""


def raised_by_handler(number: int, frame: Any) -> None:
    raise TimedOut


@pytest.mark.parametrize("warm", [0, 3])
def test_no_other_way_is_tried_after_a_timeout(warm: int) -> None:
    """A trace function stands for the interpreter: it calls the handler after so many calls and
    returns inside the package."""
    package = os.path.dirname(os.path.abspath(tw.__file__))
    x = tw.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])

    def step(w: Any) -> Any:
        loss = (x @ w).relu().sum()
        loss.backward()
        return loss.item()

    missed = []
    for k in range(1, 600, 3):
        w = tw.tensor([[1.0, -1.0, 0.5, 2.0]] * 2, requires_grad=True)
        for _ in range(warm):
            step(w)
        passed = 0

        def trace(frame: Any, event: str, arg: Any, k: int = k) -> Any:
            nonlocal passed
            code = frame.f_code
            if not code.co_filename.startswith(package) or code.co_flags & inspect.CO_GENERATOR:
                return None  # Python itself drops errors in a generator that ends early
            if event in ("call", "return") and passed < k:
                passed += 1
                if passed == k:
                    sys.settrace(None)
                    raised_by_handler(14, frame)
            return trace

        sys.settrace(trace)
        try:
            step(w)
        except TimedOut:
            pass
        else:
            missed += [k] * (passed == k)
        finally:
            sys.settrace(None)
        tw.set_grad_enabled(True)  # as in PyTorch, the end of a mode may be interrupted
        w.grad = None
        assert step(w) == 73.5
        assert w.grad.tolist() == [[9, 0, 9, 9], [12, 0, 12, 12]]
    assert missed == []


def test_what_is_an_interruption() -> None:
    def failed() -> None:
        raise ValueError("no value")

    def interrupted(*signaled: Any) -> None:
        failed()

    for call, expected in ((failed, False), (lambda: interrupted(14, sys._getframe()), True)):
        with pytest.raises(ValueError, match="no value") as caught:
            call()
        assert is_interruption(caught.value) is expected
