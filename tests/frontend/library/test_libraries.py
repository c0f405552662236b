"""torch.library.Library and torch.ops, beside PyTorch."""

from __future__ import annotations

from typing import Any

import pytest

import tilewright

ATEN: list[tuple[str, Any]] = [
    ("mm.default", lambda T: (T.ones(2, 3), T.ones(3, 2))),
    ("add.Tensor", lambda T: (T.ones(2), T.ones(2))),
    ("mul.Scalar", lambda T: (T.ones(2), 3)),
    ("view.default", lambda T: (T.ones(2, 3), [3, 2])),
    ("slice.Tensor", lambda T: (T.arange(6.0), 0, 1, 5, 2)),
    ("index.Tensor", lambda T: (T.arange(6.0).view(2, 3), [None, T.tensor([0, 2])])),
    ("_to_copy.default", lambda T: (T.ones(2),)),
    ("_softmax.default", lambda T: (T.arange(4.0), 0, False)),
    ("sum.dim_IntList", lambda T: (T.ones(2, 3), [1])),
    ("where.self", lambda T: (T.tensor([True, False]), T.ones(2), T.zeros(2))),
    ("cat.default", lambda T: ([T.ones(1), T.zeros(1)],)),
    ("sym_size.int", lambda T: (T.ones(2, 3), 1)),
    ("constant_pad_nd.default", lambda T: (T.ones(2), [1, 0])),
    ("native_layer_norm.default", lambda T: (T.arange(4.0).view(2, 2), [2], None, None, 1e-5)),
    ("rsub.Scalar", lambda T: (T.ones(2), 3)),
    ("linalg_vector_norm.default", lambda T: (T.ones(4),)),
    ("expand.default", lambda T: (T.ones(2, 1), [2, 3])),
    ("gelu.default", lambda T: (T.ones(2),)),
]


@pytest.mark.parametrize(("name", "arguments"), ATEN, ids=[name for name, _ in ATEN])
def test_operators_of_aten(torch: Any, name: str, arguments: Any) -> None:
    def run(T: Any) -> Any:
        packet, form = name.split(".")
        op = getattr(getattr(T.ops.aten, packet), form)
        assert op.name() == f"aten::{packet}" + ("" if form == "default" else f".{form}")
        assert op.overloadpacket is getattr(T.ops.aten, packet) and str(op) == f"aten.{name}"
        found = op(*arguments(T))
        parts = found if isinstance(found, tuple) else (found,)
        return [part.tolist() if isinstance(part, T.Tensor) else part for part in parts]

    for ours, theirs in zip(run(tilewright), run(torch), strict=True):
        assert tilewright.allclose(tilewright.tensor(ours), tilewright.tensor(theirs))


def _defined(T: Any, name: str) -> list[Any]:
    library = T.library.Library(name, "DEF")
    library.define("scale(Tensor x, float by=2.0, *, bool twice=False) -> Tensor")
    library.impl(
        "scale",
        lambda x, by=2.0, twice=False: x * by * (2 if twice else 1),
        "CompositeImplicitAutograd",
    )
    library.define("fill(Tensor(a!) x, int value) -> ()")

    @T.library.impl(f"{name}::fill", "cpu")
    def fill(x: Any, value: int) -> None:
        x.fill_(value)

    x = T.arange(3.0).requires_grad_()
    op = getattr(T.ops, name)
    y = op.scale(x, 3.0, twice=True)
    y.sum().backward()
    z = T.zeros(2)
    op.fill(z, 7)
    return [y.tolist(), x.grad.tolist(), op.scale.default(z).tolist(), z.tolist()]


def test_libraries_define_operators(torch: Any) -> None:
    assert _defined(tilewright, "ours") == _defined(torch, "theirs")


def test_kernels_by_the_names_of_dispatch_keys(torch: Any) -> None:
    """As bitsandbytes registers its ops: a kernel for all devices, and another for the CPU."""

    def seen(m: Any) -> list[Any]:
        found = []
        for place, names in enumerate(("default", ("CompositeExplicitAutograd",), None)):
            name = f"keys_{place}_{m.__name__}::scaled"
            m.library.define(name, "(Tensor x, int k) -> Tensor")
            m.library.register_kernel(name, names)(lambda x, k: x * k)
            op = getattr(getattr(m.ops, name.split("::")[0]), "scaled")  # noqa: B009
            found.append(op(m.ones(2), 3).tolist())
            m.library.register_kernel(name, "cpu")(lambda x, k: x - k)
            found.append(op.default(m.ones(2), 3).tolist())
        return found

    assert seen(tilewright) == seen(torch)


def test_operators_that_write_into_arguments(torch: Any) -> None:
    """Both spellings of a tensor that is written to."""

    def run(T: Any, name: str) -> Any:
        library = T.library.Library(name, "DEF")
        out = []

        def double(x: Any, out: Any) -> None:
            out.copy_(x * 2)

        for form in ("Tensor! out", "Tensor(a!) out"):
            op = f"double{len(out)}"
            library.define(f"{op}(Tensor x, {form}) -> ()")
            library.impl(op, double, "CPU")
            y = T.zeros(2)
            getattr(getattr(T.ops, name), op)(T.ones(2), y)
            out.append((y.tolist(), y._version))
        return out

    assert run(tilewright, "ours_out") == run(torch, "theirs_out")


def test_what_libraries_refuse() -> None:
    library = tilewright.library.Library("refusing", "DEF")
    library.define("f(Tensor x) -> Tensor")
    with pytest.raises(NotImplementedError, match="no device"):
        tilewright.ops.refusing.f(tilewright.ones(1))
    with pytest.raises(RuntimeError, match="multiple times"):
        library.define("f(Tensor x) -> Tensor")
    with pytest.raises(ValueError, match="expected a schema"):
        library.define("g(Tensor x)")
    with pytest.raises(NotImplementedError, match="can't be given other kernels"):
        tilewright.library.Library("aten", "IMPL").impl("add", lambda x, y: x, "CPU")
    with pytest.raises(AttributeError, match="no attribute"):
        tilewright.ops.refusing.nothing  # noqa: B018
    with pytest.raises(AttributeError, match="no overload name"):
        tilewright.ops.aten.add.Tensr  # noqa: B018
    library._destroy()
    with pytest.raises(AttributeError, match="no attribute"):
        tilewright.ops.refusing.f  # noqa: B018


def test_schemas_of_functions(torch: Any) -> None:
    def run(T: Any) -> list[str]:
        def f(
            x: T.Tensor, n: int, y: T.Tensor | None = None, *, s: str = "a", z: float = 1.5
        ) -> tuple[T.Tensor, T.Tensor]:
            raise NotImplementedError

        f.__annotations__ = {
            "x": T.Tensor, "n": int, "y": T.Tensor | None, "s": str, "z": float,
            "return": tuple[T.Tensor, T.Tensor],
        }  # fmt: skip
        return [
            T.library.infer_schema(f, mutates_args=["x"]),
            T.library.infer_schema(f, mutates_args=(), op_name="g"),
        ]

    assert run(tilewright) == run(torch)


def test_kernels_before_their_operator_and_for_devices_that_are_not_here(torch: Any) -> None:
    def run(T: Any) -> Any:
        with T.library._scoped_library("early_kernels", "FRAGMENT") as lib:

            @T.library.impl("early_kernels::twice", ["cpu"], lib=lib)
            def twice(x: Any) -> Any:
                return x * 2

            @T.library.impl("early_kernels::twice", ["MPS", "xpu"], lib=lib)
            def elsewhere(x: Any) -> Any:
                raise AssertionError

            lib.impl("thrice", lambda x: x * 3, "CPU")
            with pytest.raises(AttributeError):
                _ = T.ops.early_kernels.twice
            with pytest.raises((RuntimeError, NotImplementedError)):
                T.library.impl("early_kernels::twice", "nowhere", twice, lib=lib)
            T.library.define("early_kernels::twice", "(Tensor x) -> Tensor", lib=lib)
            lib.define("thrice(Tensor x) -> Tensor")
            ops = T.ops.early_kernels
            return ops.twice(T.ones(2)).tolist(), ops.thrice(T.ones(2)).tolist()

    assert run(tilewright) == run(torch) == ([2.0, 2.0], [3.0, 3.0])
