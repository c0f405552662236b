"""PyTorch's operator database against tilewright: values, gradients, writes and errors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import op_db
import pytest

import tilewright as tw
from tilewright.runtime import tiers

# Ops that no case of api_cases.py calls: they are looked at here, with the commit.
CALLED_HERE = """
alias_copy as_strided_copy as_strided_scatter detach_copy diagonal_copy expand_copy index_reduce
nanquantile narrow_copy permute_copy put select_copy slice_copy split_copy split_with_sizes_copy
squeeze_copy t_copy transpose_copy unbind_copy unfold_copy unsqueeze_copy view_copy
"""
SAMPLE = """
add mul div:no_rounding_mode pow clamp where sum mean std var_mean:unbiased amax
max:reduction_with_dim argmax norm
logsumexp softmax:with_dtype cat stack split chunk squeeze transpose expand flip roll gather scatter
scatter_add scatter_reduce:mean scatter_reduce:amax index_select index_add index_copy index_fill
masked_fill masked_scatter take_along_dim sort topk cumsum cumprod quantile cov corrcoef einsum
matmul bmm addmm tensordot linspace arange zeros atleast_1d unfold
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


@pytest.mark.parametrize("name", SAMPLE.split())
def test_a_sample_is_right(variants: dict[str, Any], name: str) -> None:
    assert not faults(variants[name], most=2, aspects=ASPECTS)


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


UNLISTED = dict.fromkeys(("detach_copy", "select_copy", "slice_copy", "split_copy"), _copies)
