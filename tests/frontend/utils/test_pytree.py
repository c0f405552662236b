"""torch.utils._pytree against PyTorch's."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from typing import Any, NamedTuple

import pytest

from tilewright.utils import _pytree as tree


class Pair(NamedTuple):
    a: Any
    b: Any


TREES = [
    3,
    None,
    [],
    (1, [2, {"x": 3, "y": (4,)}]),
    OrderedDict(b=1, a=[2]),
    Pair(1, {"k": None}),
    deque([1, 2], maxlen=3),
    defaultdict(list, {"z": 1, "a": 2}),
]


@pytest.mark.parametrize("value", TREES, ids=repr)
def test_a_tree_comes_apart_and_back_as_pytorchs(torch: Any, value: Any) -> None:
    theirs: Any = torch.utils._pytree
    leaves, spec = tree.tree_flatten(value)
    wanted, their_spec = theirs.tree_flatten(value)
    assert leaves == wanted and spec.num_leaves == their_spec.num_leaves
    back = tree.tree_unflatten(leaves, spec)
    assert back == value and type(back) is type(value)
    paths = [tree.keystr(path) for path, _ in tree.tree_leaves_with_path(value)]
    assert paths == [theirs.keystr(path) for path, _ in theirs.tree_leaves_with_path(value)]
    assert all(
        tree.key_get(value, path) == leaf for path, leaf in tree.tree_leaves_with_path(value)
    )


def test_maps() -> None:
    value = {"a": [1, "x"], "b": (2.5,)}
    assert tree.tree_map(lambda x: [x], value) == {"a": [[1], ["x"]], "b": ([2.5],)}
    assert tree.tree_map_only(int, lambda x: -x, value) == {"a": [-1, "x"], "b": (2.5,)}
    assert tree.tree_map(lambda x, y: (x, y), [1, 2], [3, [4]]) == [(1, 3), (2, [4])]
    assert tree.tree_leaves([(1, 2), 3], is_leaf=lambda x: isinstance(x, tuple)) == [(1, 2), 3]
    assert tree.tree_any(lambda x: x == 2.5, value) and tree.tree_all_only(int, bool, value)
    with pytest.raises(ValueError, match="Type mismatch"):
        tree.tree_map(lambda x, y: x, [1], (2,))
    with pytest.raises(ValueError, match="holds 1 items"):
        tree.tree_unflatten([1, 2], tree.tree_structure([0]))


def test_descriptions_are_compared_and_written() -> None:
    spec = tree.tree_structure([1, {"a": (2, 3)}])
    assert (
        spec == tree.tree_structure([5, {"a": (6, 7)}]) != tree.tree_structure([5, {"b": (6, 7)}])
    )
    assert hash(spec) == hash(tree.tree_structure([5, {"a": (6, 7)}]))
    assert tree.treespec_loads(tree.treespec_dumps(spec)) == spec


def test_classes_of_the_users() -> None:
    class Box:
        def __init__(self, inside: Any):
            self.inside = inside

    tree.register_pytree_node(Box, lambda b: ([b.inside], "ctx"), lambda v, c: Box(*v))
    try:
        out = tree.tree_map(lambda x: x + 1, [Box(1)])
        assert out[0].inside == 2
        with pytest.raises(ValueError, match="already registered"):
            tree.register_pytree_node(Box, lambda b: ([], None), lambda v, c: Box(None))
    finally:
        del tree.SUPPORTED_NODES[Box], tree.SUPPORTED_SERIALIZED_TYPES[Box]


def test_named_tuples_of_c_and_lists_of_packages(torch: Any) -> None:
    import time

    theirs = torch.utils._pytree

    class Point(NamedTuple):
        x: int

    for value in (time.localtime(), Point(1), (1, 2), [3], 4):
        assert tree.is_structseq_instance(value) is theirs.is_structseq_instance(value)

    class Linked(list):  # type: ignore[type-arg]
        """As tensordict's list."""

    tree.register_pytree_node(
        Linked,
        tree._list_flatten,
        tree._list_unflatten,
        flatten_with_keys_fn=tree._list_flatten_with_keys,
    )
    assert tree.tree_leaves([Linked([1, (2,)])]) == [1, 2]
    assert tree.tree_flatten_with_path(Linked([5]))[0] == [((tree.SequenceKey(0),), 5)]


def test_named_tuples_and_their_classes(torch: Any) -> None:
    for each in (Pair(1, 2), Pair, (1, 2), tuple, 3, int):
        assert tree.is_namedtuple(each) is torch.utils._pytree.is_namedtuple(each)
