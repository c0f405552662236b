"""`grad_fn`: classes, neighbours, data and hooks of nodes, against PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw


def node_program(m: Any, read: bool) -> list[Any]:
    """What a program sees of its nodes. read: whether values are read before the nodes are."""
    seen: list[Any] = []
    a = m.arange(12.0).reshape(3, 4).requires_grad_()
    b = (a.detach() * 2).requires_grad_()
    y = a * b
    z = m.nn.functional.relu(y)
    w = z.sum()
    if read:
        w.item()
    node = y.grad_fn
    seen += [type(node).__name__, repr(node)[:13], dict(node.metadata)]
    seen += [[type(f).__name__ for f, _ in node.next_functions], y.grad_fn is node]
    seen += [isinstance(node, m.autograd.graph.Node), z.grad_fn.next_functions[0][0] is node]
    node.metadata["key"] = 1
    del node
    seen.append(dict(y.grad_fn.metadata))

    def see(name: str) -> Any:
        def hook(*grads: Any) -> None:
            sums = [[None if g is None else g.sum().item() for g in each] for each in grads]
            seen.append((name, sums, a.grad is None))

        return hook

    y.grad_fn.register_prehook(see("before"))
    handle = y.grad_fn.register_hook(see("after"))
    w.grad_fn.register_prehook(lambda outputs: (outputs[0] * 3,))
    z.grad_fn.register_hook(lambda inputs, outputs: (inputs[0] * 2,))
    end = y.grad_fn.next_functions[0][0]
    end.register_prehook(see("before the leaf"))
    end.register_hook(see("after the leaf"))
    w.backward(retain_graph=True)
    seen += [a.grad.tolist(), b.grad.tolist()]
    handle.remove()
    w.backward()
    return [*seen, a.grad.tolist()]


@pytest.mark.parametrize("read", [False, True])
def test_nodes(torch: Any, read: bool) -> None:
    assert node_program(tw, read) == node_program(torch, read)


def test_hooks_of_functions_and_views(torch: Any) -> None:
    def run(m: Any) -> list[Any]:
        class Square(m.autograd.Function):
            @staticmethod
            def forward(ctx: Any, x: Any) -> Any:
                ctx.save_for_backward(x)
                return x * x

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return g * 2 * ctx.saved_tensors[0]

        a, seen = m.arange(4.0).requires_grad_(), []
        y = Square.apply(a)
        y.grad_fn.register_hook(lambda gi, go: seen.append((gi[0].tolist(), go[0].tolist())))
        y.sum().backward()
        edge = m.autograd.graph.get_gradient_edge(y)
        v = (a * 3).view(2, 2)[1:]
        names = [type(v.grad_fn), type(v.grad_fn.next_functions[0][0]), type(edge.node)]
        return [*seen, *[n.__name__ for n in names], edge.output_nr, repr(v.sum())]

    assert run(tw) == run(torch)


def test_the_way_of_distributed_training(torch: Any) -> None:
    """The node of a parameter, by way of `expand_as`."""

    def run(m: Any) -> list[Any]:
        layer, seen = m.nn.Linear(3, 2), []
        ends = []
        for p in layer.parameters():
            end = p.expand_as(p).grad_fn.next_functions[0][0]
            end.register_hook(lambda *_, p=p: seen.append((tuple(p.shape), p.grad is not None)))
            ends.append(end)
        for _ in range(2):
            layer(m.ones(4, 3)).sum().backward()
        return sorted(seen)

    assert run(tw) == run(torch)


def test_what_hooks_refuse() -> None:
    y = tw.ones(3, 4, requires_grad=True).max(1).values
    with pytest.raises(NotImplementedError, match=r"tensor.register_hook\(hook\)"):
        y.grad_fn.register_hook(print)
    z = tw.ones(3, requires_grad=True).exp()
    z.grad_fn.register_hook(lambda inputs, outputs: (None, None))
    with pytest.raises(RuntimeError, match="returned 2 gradients, expected 1"):
        z.sum().backward()


def test_each_backward_pass_has_a_number(torch: Any) -> None:
    """Packages that move saved values to the host tell passes apart by it."""

    def seen(m: Any) -> list[Any]:
        number = m._C._current_graph_task_id
        x = m.ones(2, requires_grad=True)
        numbers = [number()]
        x.register_hook(lambda g: numbers.append(number()))
        for _ in range(2):
            (x * 3).sum().backward()

        class Nested(m.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2

            @staticmethod
            def backward(ctx, g):
                before = number()
                with m.enable_grad():
                    (x * 2).sum().backward()
                numbers.extend([before, number()])
                return g * 2

        y = m.ones(2, requires_grad=True)
        Nested.apply(y).sum().backward()
        first = numbers[1]
        return [n if n < 0 else n - first for n in [*numbers, number()]]

    assert seen(tw) == seen(torch)


def shown(node: Any) -> Any:
    """The names of a graph's nodes."""
    return node and (node.name(), [shown(each) for each, _ in node.next_functions])


@pytest.mark.parametrize("read", [False, True])
@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 5, 3)])
def test_the_nodes_of_a_linear_layer(torch: Any, shape: tuple[int, ...], read: bool) -> None:
    def run(m: Any) -> list[Any]:
        weight, bias = (m.ones(*size, requires_grad=True) for size in ((4, 3), (4,)))
        found = []
        for b in (bias, None):
            for requires_grad in (True, False):
                x = m.ones(*shape, requires_grad=requires_grad)
                y = m.nn.functional.linear(x, weight, b)
                if read:
                    y.tolist()
                found.append(shown(y.grad_fn))
                node = y.grad_fn
                inner = node.next_functions[0][0]
                found.append(inner is node.next_functions[0][0])
        return found

    assert run(tw) == run(torch)


def test_gradients_that_a_hook_on_a_linear_layer_sees(torch: Any) -> None:
    def run(m: Any) -> list[Any]:
        weight = m.arange(12.0).reshape(4, 3).requires_grad_()
        bias, x = m.ones(4, requires_grad=True), m.arange(6.0).reshape(2, 3).requires_grad_()
        y, seen = m.nn.functional.linear(x, weight, bias), []

        def see(inputs: Any, outputs: Any) -> Any:
            seen.extend(g.tolist() for g in (*inputs, *outputs))
            return inputs[0], inputs[1] * 2, inputs[2] * 3

        y.grad_fn.register_hook(see)
        (y * y).sum().backward()
        return [*seen, weight.grad.tolist(), bias.grad.tolist(), x.grad.tolist()]

    assert run(tw) == run(torch)


def test_the_way_through_a_network_that_the_tutorial_shows(torch: Any) -> None:
    """The 60 Minute Blitz prints these three nodes."""

    def run(m: Any) -> list[str]:
        layers = m.nn.Sequential(m.nn.Linear(3, 4), m.nn.ReLU(), m.nn.Linear(4, 2))
        node = m.nn.MSELoss()(layers(m.ones(1, 3)), m.zeros(1, 2)).grad_fn
        names = [node.name()]
        for _ in range(2):
            node = node.next_functions[0][0]
            names.append(node.name())
        return [*names, node.variable is layers[2].bias]

    assert run(tw) == run(torch)


def test_classes_of_nodes_are_where_pytorch_has_them(torch: Any) -> None:
    seen = []
    for m in (tw, torch):

        class Twice(m.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2

            @staticmethod
            def backward(ctx, grad):
                return grad * 2

        x = m.ones(2, requires_grad=True)
        nodes = [Twice.apply(x).grad_fn, (x * 2).grad_fn]
        seen.append([(type(n).__module__, type(n).__name__, repr(n).split()[0]) for n in nodes])
    assert seen[0] == seen[1]


def test_views_and_many_results_have_one_node(torch) -> None:
    def run(m):
        x = m.arange(12.0).reshape(2, 6).requires_grad_()
        found = []
        for again in range(2):
            h = x * 2
            y = h.permute(1, 0)
            node = y.grad_fn
            if again:  # when it has been computed, too
                y.sum().item()
            found += [y.sin().grad_fn.next_functions[0][0] is node is y.grad_fn]
            row = h.view(3, 4)[0]
            found += [(row * row).grad_fn.next_functions[1][0] is row.grad_fn]
            turned = x.t()
            found += [(turned @ x).grad_fn.next_functions[0][0] is turned.grad_fn]
            for parts in (
                h.split([2, 3, 1], 1), h.split(4, 1), h.chunk(2, 1), h.unbind(1), m.linalg.qr(h),
                m.var_mean(h, 1), m.split(h, [0, 2, 0], 0),
            ):  # fmt: skip
                first = parts[0].grad_fn
                found += [(p.grad_fn is first, p.output_nr, first.name()) for p in parts]
                total = parts[1].sum() + parts[0].sum()
                ends = [node.next_functions[0] for node, _ in total.grad_fn.next_functions]
                found += [(end is first, number) for end, number in ends]
        found += [x.output_nr, h.output_nr, h.detach().output_nr]
        return found

    assert run(tw) == run(torch)


def test_nodes_of_views_say_sizes_and_dimensions(torch) -> None:
    def run(m):
        x = m.ones(2, 6, 4, requires_grad=True)
        made = [
            *x.split([1, 2, 3], 1), *x.split(4, dim=1), *x.chunk(3, 1), x.unbind(0)[1], x[:, 1:5:2],
            x[1], x.select(2, 3), x.view(12, 4), x.reshape(-1), x.flatten(1), x.permute(2, 0, 1),
            x.transpose(0, 2), x[:1].expand(3, 6, 4), x[:1].squeeze(0), x.unsqueeze(1),
            m.cat([x, x], 1), m.stack([x, x], 2), x.narrow(1, 2, 3), x[:1].squeeze(),
        ]  # fmt: skip
        saved = []
        for y in made:
            names = [n for n in dir(y.grad_fn) if n.startswith("_saved_")]
            saved.append((y.grad_fn.name(), {n: getattr(y.grad_fn, n) for n in names}))
        assert not hasattr(x.sin().grad_fn, "_saved_dim")
        return saved

    assert run(tw) == run(torch)


def test_a_view_that_several_calls_read_has_one_node_when_calls_are_known(torch) -> None:
    def run(m):
        x, w = m.ones(2, 6), m.ones(6, 6, requires_grad=True)
        found = set()
        for _ in range(80):
            a, b = (x @ w).split((2, 4), 1)
            y = m.cat([b.sin(), b], 1).cos().sum() + a.exp().sum() + a.sum()
            ends, stack = set(), [y.grad_fn]
            while stack:
                node = stack.pop()
                if node is not None and "Split" in node.name():
                    ends.add(node)
                elif node is not None:
                    stack += [each for each, _ in node.next_functions]
            found.add((len(ends), ends == {a.grad_fn}, a.output_nr, b.output_nr))
        return found

    assert run(tw) == run(torch) == {(1, True, 0, 1)}


SAVED: dict[str, Any] = {
    "product": lambda m, x, z: x * z,
    "with a constant": lambda m, x, z: x * 3,
    "constant first": lambda m, x, z: z.detach() * x,
    "quotient": lambda m, x, z: z.detach() / x,
    "power": lambda m, x, z: x**2,
    "power of tensors": lambda m, x, z: x**z,
    "exp": lambda m, x, z: (x * 2).exp(),
    "relu": lambda m, x, z: x.relu(),
    "log": lambda m, x, z: x.log(),
    "mm": lambda m, x, z: x @ z,
    "one of mm": lambda m, x, z: x @ z.detach(),
    "dot": lambda m, x, z: x[0].dot(z[1]),
    "softmax": lambda m, x, z: x.softmax(1),
}


@pytest.mark.parametrize("read", ["not", "read", "passed"])
@pytest.mark.parametrize("name", SAVED)
def test_saved_tensors_of_nodes(torch: Any, name: str, read: str) -> None:
    """What a node keeps: a leaf is the leaf itself."""

    def run(m: Any) -> dict[str, Any]:
        x = m.tensor([[1.5, 2.0], [0.5, 3.0]], requires_grad=True)
        z = m.tensor([[0.5, 1.0], [2.0, 1.25]], requires_grad=True)
        y = SAVED[name](m, x, z)
        if read != "not":
            y.sum().item()
        if read == "passed":
            y.sum().backward(retain_graph=True)
        found = {}
        for fact in ("self", "other", "result", "exponent", "mat2", "tensor"):
            if not hasattr(y.grad_fn, f"_saved_{fact}"):
                continue
            value = getattr(y.grad_fn, f"_saved_{fact}")
            assert value is not y
            if value is x or value is z:
                value = "x" if value is x else "z"
            elif hasattr(value, "tolist"):
                value = np.round(value.detach().numpy(), 4).tolist()
            found[fact] = value
        return found

    ours = run(tw)
    assert ours == run(torch) and ours


def test_saved_tensors_that_were_freed() -> None:
    x = tw.ones(2, requires_grad=True)
    y = x.exp()
    y.sum().backward()
    with pytest.raises(RuntimeError, match="already been freed"):
        y.grad_fn._saved_result  # noqa: B018
