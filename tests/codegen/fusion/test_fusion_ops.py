"""Every op record through codegen: its value, first and second derivatives in one program."""

from __future__ import annotations

import pytest
from graph_oracle import Case
from graphs import check
from op_cases import CASES
from probes import probe

from tilewright.codegen.target import CUDA, NUMPY, Target
from tilewright.ir import ops


@pytest.mark.sampled(6)
@pytest.mark.parametrize("target", [NUMPY, CUDA], ids=lambda t: t.name)
@pytest.mark.parametrize("each", CASES, ids=lambda c: c.name)
def test_values_and_derivatives(each: Case, target: Target) -> None:
    roots, values, _ = probe(each)
    leaves = {n.operands[0] if n.op is ops.variable else n: v for n, v in values.items()}
    check(roots, target, leaves, tolerance=1e-8)
