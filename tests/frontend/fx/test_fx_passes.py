"""What changes graphs: normalized arguments, filters of patterns, parts, fused norms, make_fx."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

import tilewright as tw

pytestmark = pytest.mark.computes


def fx_of(lib: Any, path: str) -> Any:
    importlib.import_module(f"{lib.__name__}.fx")
    return importlib.import_module(f"{lib.__name__}.fx.{path}")


def model_of(lib: Any) -> Any:
    class Net(lib.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = lib.nn.Linear(2, 2), lib.nn.Linear(2, 2)
            self.p = lib.nn.Parameter(lib.ones(2))

        def forward(self, x, y):  # type: ignore[no-untyped-def]
            z = self.a(x) + y
            w = lib.nn.functional.leaky_relu(self.b(z), 0.2) * self.p
            return w + z, z

    return Net()


def test_normalized_arguments(torch: Any) -> None:
    found = []
    for lib in (tw, torch):
        net = model_of(lib)
        graph = fx_of(lib, "_symbolic_trace").symbolic_trace(net).graph
        pairs = [
            n.normalized_arguments(net, normalize_to_only_use_kwargs=True)
            for n in graph.nodes
            if n.op == "call_module" or n.target is lib.nn.functional.leaky_relu
        ]
        normalize = fx_of(lib, "operator_schemas").normalize_function
        pool = lib.nn.functional.max_pool2d
        pairs.append(normalize(pool, (1, 2), {"padding": 1}, normalize_to_only_use_kwargs=True))
        found.append([str(tuple(each)) for each in pairs])
    assert found[0] == found[1]


def test_parts_of_a_module(torch: Any) -> None:
    made = []
    for lib in (tw, torch):
        net = model_of(lib)
        whole = fx_of(lib, "_symbolic_trace").symbolic_trace(net)
        calls = [n for n in whole.graph.nodes if n.op not in ("placeholder", "get_attr", "output")]
        part = {n: i // 3 for i, n in enumerate(calls)}
        paths: dict[str, str] = {}
        split = fx_of(lib, "passes.split_module").split_module(
            whole, net, part.__getitem__, qualname_map=paths
        )
        x = lib.linspace(-1, 1, 6).reshape(3, 2)
        for a, b in zip(split(x, x), net(x, x), strict=True):
            assert (a == b).all()
        made.append((paths, [n for n, _ in split.named_modules()]))
        if lib is tw:
            with pytest.raises(RuntimeError, match="cycle exists"):
                fx_of(lib, "passes.split_module").split_module(
                    whole, net, lambda n, part=part, calls=calls: calls.index(n) % 2
                )
    assert made[0] == made[1]


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_norms_become_part_of_layers(torch: Any) -> None:
    for lib in (tw, torch):
        nn = lib.nn
        net = nn.Sequential(
            nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2)
        )
        x = lib.linspace(-1, 1, 36).reshape(1, 1, 6, 6)
        net(x)
        net.eval()
        fused = fx_of(lib, "experimental.optimization").fuse(net)
        assert [type(m).__name__ for m in fused.children()] == ["Conv2d", "ReLU", "Conv2d"]
        assert lib.allclose(fused(x), net(x), atol=1e-6)


def test_patterns_with_filters(torch: Any) -> None:
    codes = []
    for lib in (tw, torch):
        module = fx_of(lib, "_symbolic_trace").symbolic_trace(
            lambda x: (x + 1).relu() + (x * 2).relu()
        )
        replace = fx_of(lib, "subgraph_rewriter").replace_pattern_with_filters
        done = replace(
            module,
            lambda x: x.relu(),
            lambda x: x.tanh(),
            [lambda match, graph, pattern: "mul" in str(list(match.nodes_map.values()))],
        )
        assert [n.name for r in done for n in r.replacements] == ["tanh"]
        codes.append([(n.op, n.name) for n in module.graph.nodes])
    assert codes[0] == codes[1]


def test_make_fx() -> None:
    make_fx = fx_of(tw, "experimental.proxy_tensor").make_fx
    held = tw.full((2,), 3.0)

    def f(x: tw.Tensor, y: list[tw.Tensor]) -> tw.Tensor:
        out = tw.empty_like(x)
        out[:] = x.relu() @ y[0]
        return out * held[: x.shape[0]].sum()

    made = make_fx(f)(tw.ones(1, 2), [tw.ones(2, 2)])
    for n in (1, 2):
        x, y = tw.randn(n, 2), [tw.randn(2, 2)]
        assert tw.equal(made(x, y), f(x, y))
    with pytest.raises(ValueError, match="Unexpected tracing type"):
        make_fx(f, tracing_mode="other")
