"""torch.utils.flop_counter: the operations of the products that a program makes.

A call is counted when it is recorded, as PyTorch counts it when it runs: a call that is made twice
counts twice, though its value may be computed once. A backward pass counts the derivatives of the
calls that it goes through. Only products count: matrices, convolutions, attention.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tilewright.ir.node import Node

from .. import ops as operators
from .. import recording
from ..autograd.operations import Count, total
from ..autograd.saving import Call, between
from .module_tracker import ModuleTracker

__all__ = ["FlopCounterMode", "register_flop_formula"]

_BACKWARD = {
    "addmm": "mm",
    "convolution": "convolution_backward",
    "_scaled_dot_product_flash_attention": "_scaled_dot_product_flash_attention_backward",
}


class _Recorded:
    """A call: its derivative, and the modules in which it was made, as often as it was."""

    def __init__(self, call: Call):
        self.call = call
        self.made: list[tuple[str, ...]] = []

    def backward(self, inputs: set[Node]) -> Count:
        """The operations of the gradients of these inputs."""
        call = self.call
        reached = tuple(i for i, o in enumerate(call.outs) if o.requires_grad)
        grads = [g for n, g in call.gradients(reached).items() if n in inputs]
        found: Counter[str] = Counter()
        for name, count in total(between(grads, call.inside) - call.inside).items():
            found[_BACKWARD.get(name, name)] += count
        return found


class FlopCounterMode:
    """A block whose products are counted, by modules and operators.

    mods: not used; all modules that run are known. depth: of the modules in the table.
    display: whether to print the table at the end. custom_mapping: formulas for operators, which
    aren't asked here: see `register_flop_formula`.
    """

    def __init__(
        self,
        mods: Any = None,
        depth: int = 2,
        display: bool = True,
        custom_mapping: dict[Any, Any] | None = None,
    ):
        self.depth, self.display = depth, display
        for op in custom_mapping or {}:
            _refuse(op)
        self.mod_tracker = ModuleTracker()
        self.flop_counts: dict[str, Counter[str]] = {"Global": Counter()}
        self._calls: dict[tuple[int, Node], _Recorded] = {}
        self._outer: Any = None
        self._handles: list[Any] = []

    def __enter__(self) -> FlopCounterMode:
        self.flop_counts, self._calls = {"Global": Counter()}, {}
        self._handles = self.mod_tracker._watch_forward()
        self._outer = recording.clock.watching
        recording.set_watching(self)
        return self

    def __exit__(self, *exc: object) -> None:
        recording.set_watching(self._outer)
        for handle in self._handles:
            handle.remove()
        self._calls = {}
        if self.display:
            print(self.get_table(self.depth))

    # ---- see `recording.epoch.Watching` ------------------------------------------------------

    def called(self, result: Any, nodes: Sequence[Any]) -> None:
        if self._outer is not None:
            self._outer.called(result, nodes)
        outs = result if type(result) is tuple else (result,)
        call = Call.of(outs, nodes)
        parents = tuple(self.mod_tracker.parents)
        self._add(total(call.inside - {n for n in nodes if isinstance(n, Node)}), [parents])
        if any(o.requires_grad for o in outs):
            key = recording.clock.number, next(o for o in outs if o.requires_grad)
            self._calls.setdefault(key, _Recorded(call)).made.append(parents)

    def passed(self, number: int, inputs: Mapping[Node, set[Node]]) -> None:
        if self._outer is not None:
            self._outer.passed(number, inputs)
        for node in inputs:
            recorded = self._calls.get((number, node))
            if recorded is not None:
                reached = {n for n in recorded.call.inputs if n in inputs}
                self._add(recorded.backward(reached), recorded.made)

    def _add(self, count: Count, made: Iterable[tuple[str, ...]]) -> None:
        if count:
            for parents in made:
                for module in parents:
                    self.flop_counts.setdefault(module, Counter()).update(count)

    # ---- results -----------------------------------------------------------------------------

    def get_total_flops(self) -> int:
        """The operations of everything in the block."""
        return sum(self.flop_counts["Global"].values())

    def get_flop_counts(self) -> dict[str, dict[Any, int]]:
        """The operations by modules, then by operators of `torch.ops.aten`."""
        return {
            module: {_operator(name): n for name, n in counts.items()}
            for module, counts in self.flop_counts.items()
            if counts
        }

    def get_table(self, depth: int | None = None) -> str:
        """The operations by modules down to `depth`, and by operators, as a table."""
        depth = self.depth if depth is None else depth
        total = max(self.get_total_flops(), 1)
        rows = []
        for module in sorted(self.flop_counts, key=lambda m: (m != "Global", m)):
            level = 0 if module == "Global" else module.count(".") + 1
            counts = self.flop_counts[module]
            if level > depth:
                continue
            named = [(module, sum(counts.values()))]
            named += [(f" - aten.{name}", n) for name, n in counts.items()]
            rows += [(" " * level + n, _with_unit(c), f"{c / total:.2%}") for n, c in named]
        head = ("Module", "FLOP", "% Total")
        widths = [max(len(row[i]) for row in (head, *rows)) for i in range(3)]
        lines = [
            "  ".join((row[0].ljust(widths[0]), row[1].rjust(widths[1]), row[2].rjust(widths[2])))
            for row in (head, tuple("-" * w for w in widths), *rows)
        ]
        return "\n".join(lines)


def _with_unit(count: int) -> str:
    power = min(max(len(str(count)) - 1, 0) // 3, 4)
    return f"{count / 1000**power:.3f}{['', 'K', 'M', 'B', 'T'][power]}" if power else str(count)


_named: dict[str, Any] = {}


def _operator(name: str) -> Any:
    """torch.ops.aten's operator of this name; a name alone where there is none to call."""
    if name not in _named:
        aten: Any = operators.aten  # type: ignore[attr-defined]
        try:
            _named[name] = getattr(aten, name)
        except AttributeError:
            _named[name] = operators.OpOverloadPacket("aten", name, _uncallable, frozenset())
    return _named[name]


def _uncallable(*args: Any, **kwargs: Any) -> Any:
    raise NotImplementedError("this operator is the name of a sum of operations alone")


def _refuse(op: Any) -> None:
    raise NotImplementedError(
        f"flop_counter: no formula is asked for {op}: what the call records is counted"
    )


def register_flop_formula(targets: Any, get_raw: bool = False) -> Callable[[Any], Any]:
    """Refused: an operator's products are counted in the graph that it records."""
    _refuse(targets)
    raise AssertionError
