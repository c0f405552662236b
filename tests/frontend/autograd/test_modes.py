"""Grad modes and autocast as decorators."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import tilewright as tw


def test_calls_of_several_threads_share_no_mode() -> None:
    """Two threads are in one decorated function at a time, and leave it in the order they came."""
    entered, leave = threading.Event(), threading.Event()
    seen = {}

    @tw.enable_grad()
    def waits() -> None:
        entered.set()
        assert leave.wait(20)

    def called(name: str, outer: Any) -> None:
        with outer:
            waits()
            seen[name] = tw.is_grad_enabled()

    threads = []
    for name, outer in (("with", tw.enable_grad()), ("without", tw.no_grad())):
        threads.append(threading.Thread(target=called, args=(name, outer)))
        threads[-1].start()
        assert entered.wait(20)
        entered.clear()
    leave.set()
    for each in threads:
        each.join()
    assert seen == {"with": True, "without": False}


@pytest.mark.parametrize("mode", ["no_grad", "inference_mode", "autocast"])
def test_generators_take_values_and_errors(torch: Any, mode: str) -> None:
    """What is sent and thrown arrives, and only the generator's own steps run in a grad mode;
    autocast is for calls, and a call only makes the generator."""

    def seen(m: Any) -> list[Any]:
        found: list[Any] = []

        def is_on() -> bool:
            if mode == "autocast":
                return bool(m.is_autocast_enabled("cpu"))
            return not m.is_grad_enabled()

        def steps() -> Any:
            said = []
            try:
                while len(said) < 2:
                    said.append((yield is_on()))
                return said
            except ValueError as error:
                yield f"caught {error}"
            finally:
                found.append(("closed", is_on()))

        block = m.autocast("cpu", m.bfloat16) if mode == "autocast" else getattr(m, mode)()
        decorated = block(steps)
        one = decorated()
        found += [next(one), is_on(), one.send("a"), is_on()]
        with pytest.raises(StopIteration) as end:
            one.send("b")
        found.append(end.value.value)
        two = decorated()
        found += [next(two), two.throw(ValueError("it")), is_on()]
        two.close()
        three = decorated()
        next(three)
        three.close()
        with pytest.raises(KeyError):
            four = decorated()
            next(four)
            four.throw(KeyError("out"))
        return [*found, is_on()]

    assert seen(tw) == seen(torch)


def test_blocks_of_packages_decorate_in_clones_of_themselves() -> None:
    from tilewright.utils._contextlib import (
        _DecoratorContextManager,
        _NoParamDecoratorContextManager,
    )

    assert isinstance(tw.no_grad(), _NoParamDecoratorContextManager)

    class Counted(_DecoratorContextManager):
        def __init__(self, log: list[int]):
            self.log = log

        def clone(self) -> Counted:
            return Counted(self.log)

        def __enter__(self) -> None:
            self.log.append(id(self))

        def __exit__(self, *exc: object) -> None:
            assert self.log[-1] == id(self)

    log: list[int] = []
    block = Counted(log)
    assert block(lambda x: x + 1)(2) == 3 and len(log) == 1 and log[0] != id(block)


def test_a_mode_that_is_set_prints_as_in_pytorch(torch: Any) -> None:
    assert repr(tw.set_grad_enabled(True)) == repr(torch.set_grad_enabled(True))
    for m in (tw, torch):
        with pytest.raises(RuntimeError, match="requires_grad must be a bool"):
            m.ones(2).requires_grad = "yes"
