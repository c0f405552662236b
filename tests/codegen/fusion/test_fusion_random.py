"""Random graphs: however they are cut and merged, each root keeps its value."""

from __future__ import annotations

from graphs import check
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_graphs import graphs, graphs_in_two_sizes

from tilewright.codegen.fusion import precedents
from tilewright.codegen.target import CUDA, NUMPY, Target
from tilewright.ir.node import Node

# Merges are decided by cost; with other costs other merges are tried.
GREEDY = Target("greedy", "numpy", True, 1 << 40, fuse_limit=64, op_cost=0.0, parallel=1)
LAZY = Target("lazy", "triton", False, 1, fuse_limit=3, op_cost=50.0, row_limit=2)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(graphs(), st.sampled_from([NUMPY, CUDA, GREEDY, LAZY]))
def test_values_of_random_graphs(roots: list[Node], target: Target) -> None:
    check(roots, target, tolerance=1e-9)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(graphs_in_two_sizes(), st.sampled_from([NUMPY, CUDA, GREEDY, LAZY]))
def test_values_in_other_sizes(two: tuple[list[Node], list[Node]], target: Target) -> None:
    """The second graph is fused as the first one was, if they differ in sizes alone."""
    precedents.clear()
    for roots in two:
        check(roots, target, tolerance=1e-9)
