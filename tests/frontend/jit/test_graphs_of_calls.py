"""torch.jit._get_trace_graph: the calls that counters of operations read, against PyTorch."""

from __future__ import annotations

from typing import Any

import pytest

import tilewright as tw

COUNTED = {
    "aten::_convolution", "aten::linear", "aten::bmm", "aten::matmul", "aten::einsum",
    "aten::relu_",
    "aten::batch_norm", "aten::layer_norm", "aten::group_norm", "aten::upsample_bilinear2d",
    "aten::upsample_nearest2d", "aten::adaptive_avg_pool2d", "aten::embedding", "aten::add_",
    "aten::softmax", "aten::scaled_dot_product_attention", "aten::flatten",
}  # fmt: skip


def sizes(value: Any) -> Any:
    return value.type().sizes() if value.isCompleteTensor() else None


def shown(node: Any) -> Any:
    """A node's kind, scope and sizes, with the constants that counters ask for."""
    given = list(node.inputs())
    facts: list[Any] = [node.kind(), node.scopeName(), [sizes(v) for v in node.outputs()]]
    if node.kind() == "aten::einsum":
        return [*facts, given[0].toIValue(), [sizes(v) for v in given[1].node().inputs()]]
    if node.kind() in ("aten::_convolution", "aten::batch_norm"):
        facts.append(given[6 if "conv" in node.kind() else 5].toIValue())
    if node.kind() == "aten::_convolution":
        assert len(given) == 13
    count = 2 if node.kind() in ("aten::_convolution", "aten::linear", "aten::bmm") else 1
    return [*facts, [sizes(v) for v in given[:count]]]


def images(m: Any) -> Any:
    nn = m.nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(
                nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True),
                nn.ConvTranspose2d(4, 4, 2, 2), nn.GroupNorm(2, 4), nn.Upsample(scale_factor=2),
                nn.Upsample(scale_factor=2, mode="bilinear"), nn.AdaptiveAvgPool2d(2), nn.Flatten(),
            )  # fmt: skip
            self.head = nn.Linear(16, 5)

        def forward(self, x: Any) -> Any:
            y = self.head(self.body(x))
            y += 1
            return m.einsum("ni,nj->ij", y, y) @ m.ones(5, 2) + m.bmm(y[None].mT, y[None])[0, :, :2]

    return Net().eval(), (m.ones(2, 3, 8, 8),)


def texts(m: Any) -> Any:
    class Net(m.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = m.nn.Embedding(10, 8)
            self.attention = m.nn.MultiheadAttention(8, 2)
            self.other = m.nn.MultiheadAttention(8, 2, kdim=6, vdim=6, batch_first=True)
            self.norm = m.nn.LayerNorm(8)

        def forward(self, tokens: Any, memory: Any) -> Any:
            x = self.table(tokens)
            y, _ = self.attention(x, x, x)
            z, _ = self.other(x, memory, memory, need_weights=False)
            return self.norm(y + z)

    return Net().train(), (m.zeros(3, 5, dtype=m.int64), m.ones(3, 4, 6))


@pytest.mark.parametrize("make", [images, texts])
@pytest.mark.filterwarnings("ignore")
def test_nodes_have_pytorchs_kinds_sizes_and_scopes(torch: Any, make: Any) -> None:
    def run(m: Any) -> Any:
        model, given = make(m)

        def enter(name: str) -> Any:
            return lambda module, args: m._C._get_tracing_state().push_scope(name)

        def leave(module: Any, args: Any, result: Any) -> None:
            m._C._get_tracing_state().pop_scope()

        for name, module in model.named_modules():
            module.register_forward_pre_hook(enter(name))
            module.register_forward_hook(leave)
        assert m._C._get_tracing_state() is None
        graph, result = m.jit._get_trace_graph(model, given)
        assert m._C._get_tracing_state() is None
        return [shown(n) for n in graph.nodes() if n.kind() in COUNTED], list(result.shape)

    assert run(tw) == run(torch)


def test_functions_are_traced_and_give_their_arguments(torch: Any) -> None:
    for m in (tw, torch):
        x = m.ones(2, 3)
        graph, result, given = m.jit._get_trace_graph(
            lambda a: (a * 2).sin(), x, return_inputs=True
        )
        kinds = [n.kind() for n in graph.nodes() if n.kind() != "prim::Constant"]
        assert kinds == ["aten::mul", "aten::sin"] and result.shape == (2, 3)
        assert given[0].shape == (2, 3)
        assert isinstance(graph, m._C.Graph) and isinstance(next(graph.nodes()), m._C.Node)
