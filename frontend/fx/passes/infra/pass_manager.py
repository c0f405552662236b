"""Passes in an order."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ....nn import Module
from .pass_base import PassResult

__all__ = [
    "PassManager",
    "inplace_wrapper",
    "pass_result_wrapper",
    "this_before_that_pass_constraint",
]

Pass = Callable[..., Any]
Constraint = Callable[[Pass, Pass], bool]


def pass_result_wrapper(fn: Pass) -> Pass:
    """A pass that gives a module, or changes it in place, as one that gives a PassResult."""

    @functools.wraps(fn)
    def run(gm: Any) -> PassResult | None:
        result = fn(gm)
        if result is None:
            return PassResult(gm, True)
        return result if isinstance(result, PassResult) else PassResult(result, True)

    if not hasattr(run, "__name__"):
        run.__name__ = type(fn).__name__
    return run


inplace_wrapper = pass_result_wrapper


def this_before_that_pass_constraint(this: Pass, that: Pass) -> Constraint:
    """`that` may not come before `this`."""
    return lambda a, b: not (a == that and b == this)


class PassManager:
    """Runs passes one after another, `steps` times or until none changes anything.

    constraints: each is true for all pairs of passes (an earlier one, a later one).
    run_checks_after_each_pass: whether `check(module)` is called after each pass.
    """

    def __init__(
        self,
        passes: list[Pass] | None = None,
        constraints: list[Constraint] | None = None,
        steps: int | None = None,
        run_checks_after_each_pass: bool = False,
        suppress_check_failures: bool = False,
    ):
        self.passes = list(passes or ())
        self.constraints = list(constraints or ())
        self.steps = 1 if steps is None else steps
        self.run_checks_after_each_pass = run_checks_after_each_pass
        self.suppress_check_failures = suppress_check_failures
        self._validated = False

    def add_pass(self, _pass: Pass) -> None:
        self.passes.append(_pass)
        self._validated = False

    def add_constraint(self, constraint: Constraint) -> None:
        self.constraints.append(constraint)
        self._validated = False

    def _breaks(self, earlier: Pass, later: Pass) -> bool:
        return any(not holds(earlier, later) for holds in self.constraints)

    def validate_constraints(self) -> None:
        """RuntimeError unless the order of the passes keeps all constraints."""
        for i, first in enumerate(self.passes):
            for then in self.passes[i + 1 :]:
                if self._breaks(first, then):
                    raise RuntimeError(
                        "pass schedule constraint violated. Expected pass "
                        f"{getattr(then, '__name__', then)} before "
                        f"{getattr(first, '__name__', first)}"
                    )
        self._validated = True

    def solve_constraints(self) -> None:
        """Put the passes into an order that keeps the constraints."""
        left, ordered = list(self.passes), []
        while left:
            ready = next(
                (p for p in left if not any(self._breaks(p, q) for q in left if q is not p)), None
            )
            if ready is None:
                raise RuntimeError("Circular dependency detected between the passes")
            left.remove(ready)
            ordered.append(ready)
        self.passes, self._validated = ordered, True

    def add_checks(self, check: Callable[[Module], Any]) -> None:
        """Call `check` of a module after passes."""
        self.check = check  # type: ignore[method-assign, assignment]

    def check(self, module: Module) -> None:
        """Nothing by default."""

    def __call__(self, module: Module) -> PassResult:
        if not self._validated:
            self.solve_constraints()
        self.check(module)
        changed = False
        for _ in range(self.steps):
            modified = False
            for each in self.passes:
                result = each(module)
                if not isinstance(result, PassResult):
                    raise TypeError(
                        f"The result of the pass {getattr(each, '__name__', each)} should be type "
                        "PassResult. Please wrap it with pass_result_wrapper()"
                    )
                module, modified = result.graph_module, modified or result.modified
                recompile = getattr(module, "recompile", None)
                if recompile is not None:
                    recompile()
                if self.run_checks_after_each_pass:
                    self.check(module)
            changed = changed or modified
            if not modified:
                break
        return PassResult(module, changed)  # type: ignore[arg-type]
