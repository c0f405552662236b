"""torch.utils.flop_counter: the floating-point operations of products, as calls record them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from tilewright.ir import ops
from tilewright.ir.node import Node
from tilewright.ir.op import Op
from tilewright.ir.ops.attention import attention

from ..nn.global_hooks import register_module_forward_hook, register_module_forward_pre_hook
from ..nn.module import Module
from ..ops import _OpNamespace
from ..recording import clock, epoch, flushing

__all__ = ["FlopCounterMode"]

Count = tuple[str, int]
"""The name of one of PyTorch's operators, and its operations."""


def _linear(node: Node) -> Count:
    return "mm" if len(node.operands) == 2 else "addmm", 2 * _size(node) * _last(node.operands[0])


def _matmul(node: Node) -> Count:
    batch = math.prod(node.shape[:-2])
    return "mm" if batch == 1 else "bmm", 2 * _size(node) * _last(node.operands[0])


def _attention(node: Node) -> Count:
    q, k, v = node.operands[:3]
    scores = math.prod(q.shape[:-1]) * k.shape[-2]
    return "scaled_dot_product_attention", 2 * scores * (_last(q) + _last(v))


def _conv(node: Node) -> Count:
    return "convolution", 2 * _size(node) * math.prod(node.operands[1].shape[1:])


def _conv_input_grad(node: Node) -> Count:
    g, weight = node.operands
    return "convolution", 2 * _size(g) * math.prod(weight.shape[1:])


def _conv_weight_grad(node: Node) -> Count:
    return "convolution", 2 * _size(node.operands[0]) * math.prod(node.shape[1:])


def _size(node: Node) -> int:
    return math.prod(node.shape)


def _last(node: Node) -> int:
    return node.shape[-1]


_COUNTS: dict[Op, Callable[[Node], Count]] = {
    ops.linear: _linear,
    ops.linear_input_grad: lambda n: ("mm", 2 * _size(n.operands[0]) * _last(n)),
    ops.linear_weight_grad: lambda n: ("mm", 2 * _size(n.operands[0]) * _last(n)),
    ops.matmul: _matmul,
    attention: _attention,
    ops.conv: _conv,
    ops.conv_input_grad: _conv_input_grad,
    ops.conv_weight_grad: _conv_weight_grad,
}


class FlopCounterMode:
    """A block whose products are counted: linear layers, matrix products, convolutions, attention.

        with FlopCounterMode(display=False) as counter:
            model(x)
        counter.get_total_flops()

    A multiplication and an addition are two operations. What the same expression gives twice is
    computed and counted once. The products of a backward pass are counted for the whole, "Global",
    and for no module; the steps of recurrent layers aren't counted. Transposed convolutions and the
    gradients of convolutions count as convolutions. The block holds the memory of all that it
    records. depth: how deep modules are shown; display: whether the table is printed.
    """

    def __init__(
        self,
        mods: Any = None,
        depth: int = 2,
        display: bool = True,
        custom_mapping: dict[Any, Any] | None = None,
    ):
        if custom_mapping:
            raise NotImplementedError("FlopCounterMode: formulas of one's own aren't supported")
        self.depth, self.display = depth, display
        self._counts: dict[str, dict[Any, int]] = {}

    def __enter__(self) -> FlopCounterMode:
        self._counts = defaultdict(lambda: defaultdict(int))
        flushing.end_step()  # what came before is no part of the block
        self._seen, self._at, self._number = set[Node](), 0, clock.number
        self._names, self._modules = ["Global"], dict[Module, str]()
        clock.holding += 1
        self._hooks = [
            register_module_forward_pre_hook(self._enter),
            register_module_forward_hook(self._leave, always_call=True),
        ]
        return self

    def __exit__(self, *exc: object) -> None:
        for hook in self._hooks:
            hook.remove()
        self._count()
        clock.holding -= 1
        if self.display:
            print(self.get_table(self.depth))

    def _enter(self, module: Module, args: Any) -> None:
        self._count()
        if len(self._names) == 1:  # the names of what it has begin with its own
            root = type(module).__name__
            for name, each in module.named_modules():
                self._modules.setdefault(each, f"{root}.{name}" if name else root)
        self._names.append(self._modules.get(module, type(module).__name__))

    def _leave(self, module: Module, args: Any, output: Any) -> None:
        self._count()
        self._names.pop()

    def _count(self) -> None:
        """Count what was recorded since the last time, for the modules that are being called."""
        if clock.number != self._number:  # the program ended the epoch, as `torch.func` may
            self._number, self._at = clock.number, 0
        for handle in epoch.handles[self._at :]:
            if isinstance(handle._node, Node):
                self._walk(handle._node)
        self._at = len(epoch.handles)

    def _walk(self, root: Node) -> None:
        stack = [root]
        while stack:
            node = stack.pop()
            if node in self._seen:
                continue
            self._seen.add(node)
            stack += node.operands
            formula = _COUNTS.get(node.op)
            if formula is not None:
                name, flops = formula(node)
                for module in self._names:
                    self._counts[module][getattr(_aten, name)] += flops

    def get_total_flops(self) -> int:
        return sum(self._counts.get("Global", {}).values())

    def get_flop_counts(self) -> dict[str, dict[Any, int]]:
        """The operations of each module and of all, "Global", by PyTorch's operators."""
        return {module: dict(counts) for module, counts in self._counts.items()}

    def get_table(self, depth: int | None = None) -> str:
        """The modules down to a depth, what they compute, and their part of the whole."""
        depth = self.depth if depth is None else depth
        total = max(self.get_total_flops(), 1)
        rows = [("Module", "FLOP", "% Total")]
        for module in sorted(self._counts, key=lambda name: (name != "Global", name)):
            if module.count(".") < depth:
                counts = {module: sum(self._counts[module].values())}
                counts |= {f" - {op}": n for op, n in self._counts[module].items()}
                rows += [(what, str(n), f"{n / total:.2%}") for what, n in counts.items()]
        wide = [max(map(len, column)) for column in zip(*rows)]
        return "\n".join(
            f"{what:<{wide[0]}}  {n:>{wide[1]}}  {part:>{wide[2]}}" for what, n, part in rows
        )


_aten = _OpNamespace("aten")
