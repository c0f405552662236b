"""PyTorch's operator database against tilewright: values, gradients, writes and errors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import op_db
import op_db_dtypes
import op_db_dtypes_known
import op_db_values
import pytest
from op_db_known import KNOWN

import tilewright as tw
from tilewright.runtime import tiers

# Ops that no case of api_cases.py calls: they are looked at here, with the commit.
CALLED_HERE = """
alias_copy as_strided_copy as_strided_scatter broadcast_shapes cumulative_trapezoid detach_copy
diagonal_copy expand_copy gradient histogram histogramdd index_reduce is_nonzero is_same_size
is_set_to is_signed nanquantile narrow_copy nonzero_static norm_except_dim
permute_copy put renorm select_copy slice_copy split_copy split_with_sizes_copy squeeze_copy t_copy
transpose_copy unbind_copy unfold_copy unsafe_split_with_sizes unsqueeze_copy view_copy
"""


@pytest.fixture(autouse=True)
def op_by_op(torch: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run graphs op by op: of each there is one run, and compiling it would take longer."""
    monkeypatch.setattr(tiers, "mode", tiers.BASELINE)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def variants(torch: Any) -> dict[str, Any]:
    return {op_db.title(op): op for op in op_db.load()}


def faults(op: Any, **options: Any) -> list[str]:
    report = op_db.examine(op, **options)
    assert report is not None, f"{op_db.title(op)} is missing"
    assert report["forward"].all, f"no sample of {op_db.title(op)} was compared"
    return [f"{aspect}: {each}" for aspect, tally in report.items() for each in tally.faults]


ASPECTS = ("forward", "gradient", "in place", "out")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", CALLED_HERE.split())
def test_what_has_no_case_is_right(variants: dict[str, Any], name: str) -> None:
    found = [op for title, op in variants.items() if title.partition(":")[0] == name]
    if not found:  # the database has no variant of it
        assert name in UNLISTED
        UNLISTED[name]()
    for op in found:
        # PyTorch's gradient of as_strided_scatter lies in the wrong elements (2.13).
        aspects = [a for a in ASPECTS if (name, a) != ("as_strided_scatter", "gradient")]
        assert not faults(op, dtypes=("float32", "int64"), most=2, aspects=aspects)


def _copies() -> None:
    x = tw.arange(6.0).reshape(2, 3)
    for name, args, view in (
        ("detach_copy", (), x),
        ("select_copy", (1, 2), x[:, 2]),
        ("slice_copy", (1, 0, 3, 2), x[:, ::2]),
        ("split_copy", (1,), x.split(1)),
    ):
        copy = getattr(tw, name)(x, *args)
        for a, b in zip(*((t if isinstance(t, tuple) else (t,)) for t in (copy, view))):
            assert a.tolist() == b.tolist() and a.is_contiguous()
            a.fill_(-1)
    assert x.amin() == 0, "a copy shares the memory of what it copies"


def _answers() -> None:
    x = tw.arange(6.0)
    assert tw.is_signed(x) and not x.to(tw.uint8).is_signed()
    assert tw.is_same_size(x, -x) and not x.is_same_size(x[1:])
    assert tw.is_nonzero(x[1]) and not x[:1].is_nonzero()
    with pytest.raises(RuntimeError, match="no values"):
        tw.is_nonzero(x[:0])
    assert x.is_set_to(x.detach()) and x[1:].is_set_to(x[1:])
    assert not x.is_set_to(x.clone()) and not x[1:].is_set_to(x[:-1])


def _splits() -> None:
    parts = tw.unsafe_split_with_sizes(tw.arange(5), [2, 3])
    assert [p.tolist() for p in parts] == [[0, 1], [2, 3, 4]]
    with pytest.raises(RuntimeError, match="split_sizes"):
        tw.unsafe_split_with_sizes(tw.arange(5), [2, 2])


def _norms() -> None:
    x = tw.arange(6.0).reshape(1, 2, 3)
    assert tw.norm_except_dim(x, 1, 2).tolist() == [[[3, 5, 7]]]
    assert tw.norm_except_dim(x, 1, -1).tolist() == 15


UNLISTED = {
    **dict.fromkeys(("detach_copy", "select_copy", "slice_copy", "split_copy"), _copies),
    **dict.fromkeys(("is_nonzero", "is_same_size", "is_set_to", "is_signed"), _answers),
    "unsafe_split_with_sizes": _splits,
    "norm_except_dim": _norms,
}


# ---- all of it -------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("part", range(12))
def test_what_differs_is_known(variants: dict[str, Any], part: int) -> None:
    """A fault that isn't in op_db_known.py is new; one that is there and is right is stale."""
    ops = list(variants.values())[part::12]
    new, stale = op_db.differences(ops, KNOWN)
    assert not new, "\n".join(new)
    assert not stale, f"these are right: take them out of op_db_known.py: {stale}"


# ---- dtypes that PyTorch refuses -------------------------------------------------------------


def _unknown_dtypes(ops: Iterable[Any]) -> None:
    new, stale = op_db_dtypes.differences(ops, op_db_dtypes_known.KNOWN)
    assert not new, f"PyTorch refuses these: {new}"
    assert not stale, f"refused by now: take them out of op_db_dtypes_known.py: {stale}"


def test_refused_dtypes_of_some_ops(variants: dict[str, Any]) -> None:
    """One op for each reason, and some that refuse what PyTorch refuses."""
    known = "add full_like cdist nn.functional.rrelu histc round:decimals_0 masked.var"
    others = "exp softmax masked.softmax masked.mean unravel_index unique_consecutive"
    _unknown_dtypes([variants[name] for name in f"{known} {others}".split()])


@pytest.mark.slow
@pytest.mark.parametrize("part", range(6))
def test_refused_dtypes_are_known(variants: dict[str, Any], part: int) -> None:
    _unknown_dtypes(list(variants.values())[part::6])


# ---- torch._foreach_x ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        "_foreach_add(a, 2)",
        "_foreach_add(a, b, alpha=2)",
        "_foreach_sub(a, [1.5, 2.5])",
        "_foreach_mul(a, torch.tensor(3.0))",
        "_foreach_div_(a, b)",
        "_foreach_maximum_(a, 0.5)",
        "_foreach_maximum(a, b)",
        "_foreach_addcmul_(a, b, b, 0.5)",
        "_foreach_addcdiv_(a, b, b, [2.0, 3.0])",
        "_foreach_addcdiv(a, b, b, torch.tensor([2.0, 3.0]))",
        "_foreach_lerp_(a, b, 0.25)",
        "_foreach_copy_(a, b)",
        "_foreach_zero_(a)",
        "_foreach_sqrt_(b)",
        "_foreach_neg(a)",
        "_foreach_pow(a, 2)",
        "_foreach_norm(a)",
        "_foreach_norm(a, 1)",
        "_foreach_max(a)",
    ],
)
def test_an_op_on_each_tensor_of_a_list(torch: Any, call: str) -> None:
    results = []
    for library in (torch, tw):
        a = [library.tensor([1.0, -2.0]), library.tensor([[3.0], [0.25]])]
        b = [library.tensor([0.5, 4.0]), library.tensor([[2.0], [1.0]])]
        made = eval(f"torch.{call}", {"torch": library, "a": a, "b": b})
        op_name = call.partition("(")[0]
        assert isinstance(made, list if op_name.endswith("_") else tuple)
        results.append([*made, *a, *b])
    op_db_values.same(results[1], results[0])


def test_there_is_no_foreach_of_anything_else() -> None:
    assert not hasattr(tw, "_foreach_nothing") and not hasattr(tw, "_foreach_matmul")
    with pytest.raises(RuntimeError, match="same number of tensors"):
        tw._foreach_add([tw.ones(1)], [tw.ones(1)] * 2)  # type: ignore[attr-defined]


def test_operands_of_foreach_by_name(torch) -> None:
    def run(m):
        xs = [m.arange(4.0) - 1, m.arange(3.0) + 1]
        ys = [x + 2 for x in xs]
        found = [
            m._foreach_norm(xs, ord=1), m._foreach_norm(xs, ord=float("inf"), dtype=m.float64),
            m._foreach_add(xs, other=ys, alpha=2), m._foreach_mul(xs, scalar=3),
            m._foreach_mul(xs, scalars=[2.0, 3.0]), m._foreach_pow(xs, exponent=2),
            m._foreach_maximum(xs, other=ys), m._foreach_addcmul(xs, ys, ys, scalars=[1.0, 2.0]),
            m._foreach_lerp(xs, ys, weight=0.25), m._foreach_clamp_min(xs, scalar=0.5),
        ]  # fmt: skip
        m._foreach_copy_(xs, src=ys)
        return [[x.tolist() for x in each] for each in (*found, xs)]

    assert run(tw) == run(torch)
