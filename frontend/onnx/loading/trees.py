"""Ensembles of trees: all trees and examples descend together, a level at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.ir import dtype as dtypes

from .api import f
from .scores import classified, labelled, labels_of, transformed
from .table import ML, operator
from .values import tensor_of

_COMPARE: dict[str, Any] = {
    "BRANCH_LEQ": f.le, "BRANCH_LT": f.lt, "BRANCH_GTE": f.ge, "BRANCH_GT": f.gt,
    "BRANCH_EQ": f.eq, "BRANCH_NEQ": f.ne,
}  # fmt: skip
_MEMBER, _LEAF = "BRANCH_MEMBER", "LEAF"
_MODES = (*_COMPARE, _MEMBER)  # in the order of their numbers
_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
_SUMS = ("AVERAGE", "SUM", "MIN", "MAX")


@dataclass
class Forest:
    """The nodes of all trees, in one array each.

    feature, value, mode, yes, no, missing: of each node, the feature that it compares, with what
    and how, the next node if that is true, if not, and whether NaN counts as true. A leaf is its
    own next node. members: for modes `BRANCH_MEMBER` the set, filled up with NaN.
    weights: what each node adds to each target, [nodes, targets]; reached: where that is a leaf's.
    roots: the first node of each tree. depth: of the deepest tree.
    """

    feature: np.ndarray
    value: np.ndarray
    mode: np.ndarray
    yes: np.ndarray
    no: np.ndarray
    missing: np.ndarray
    members: np.ndarray | None
    weights: np.ndarray
    reached: np.ndarray
    roots: np.ndarray

    def __post_init__(self) -> None:
        self.depth, self.met = self._measured()
        self.modes = [m for m in _MODES if (self.mode == m).any()]
        self._tensors: dict[Any, dict[str, Any]] = {}

    def _measured(self) -> tuple[int, int]:
        """(the most steps from a root to a leaf, how many nodes are met). A cycle is an error."""
        count = len(self.yes)
        for nexts in (self.yes, self.no):
            if len(nexts) and not (0 <= nexts.min() <= nexts.max() < count):
                raise ValueError("a node's branch leads to no node")
        at, depth, met = np.unique(self.roots), 0, 0
        while True:
            inner = at[self.mode[at] != _LEAF]
            met += at.size
            if not inner.size:
                return depth, met
            if depth > count:
                raise ValueError("a tree has a cycle")
            at, depth = np.unique(np.concatenate([self.yes[inner], self.no[inner]])), depth + 1

    def on(self, device: Any) -> dict[str, Any]:
        """The arrays as tensors."""
        found = self._tensors.get(device)
        if found is None:
            arrays: dict[str, Any] = {
                n: getattr(self, n)
                for n in ("feature", "value", "yes", "no", "missing", "weights", "reached", "roots")
            }
            if self.members is not None:
                arrays["members"] = self.members
            for mode in self.modes:
                arrays[mode] = self.mode == mode
            found = self._tensors[device] = {n: tensor_of(a, device) for n, a in arrays.items()}
        return found

    def leaves(self, x: Any) -> Any:
        """The node in which each example of x[n, features] ends in each tree: [n, trees]."""
        t = self.on(x.device)
        at = t["roots"].expand(x.shape[0], -1)
        for _ in range(self.depth):
            given = f.gather(x, 1, t["feature"][at])
            value = t["value"][at]
            true: Any = None
            for mode in self.modes:
                if mode == _MEMBER:
                    found = (given.unsqueeze(-1) == t["members"][at]).any(-1)
                else:
                    found = _COMPARE[mode](given, value)
                true = found if true is None else f.where(t[mode][at], found, true)
            true = true | (f.isnan(given) & t["missing"][at])
            at = f.where(true, t["yes"][at], t["no"][at])
        return at

    def scores(self, x: Any, how: str) -> Any:
        """The sums (or means, least or largest) of the leaves' weights: [n, targets]."""
        t = self.on(x.device)
        at = self.leaves(x)
        given = t["weights"][at]  # [n, trees, targets]
        if how in ("MIN", "MAX"):
            empty = float("inf") if how == "MIN" else float("-inf")
            given = f.where(t["reached"][at], given, empty)
            found = f.amin(given, 1) if how == "MIN" else f.amax(given, 1)
            return f.where(f.isinf(found), 0.0, found)
        total = given.sum(1)
        return total / len(self.roots) if how == "AVERAGE" else total


def _numbers(values: Sequence[float], dtype: Any = np.float32) -> np.ndarray:
    return np.asarray(values, dtype)


# ---- TreeEnsembleRegressor and TreeEnsembleClassifier ------------------------------------------


def _by_names(a: Mapping[str, Any], kind: str, targets: int) -> Forest:
    """The forest of nodes that are named by pairs of numbers: a tree and a node of it. kind: of
    the weights' attributes, `target` or `class`."""
    names = list(zip(a["nodes_treeids"], a["nodes_nodeids"], strict=True))
    place = {name: i for i, name in enumerate(names)}
    mode = np.array(a["nodes_modes"], object)
    leaf = mode == _LEAF

    def nexts(key: str) -> np.ndarray:
        given = a[key]
        found = [
            i if leaf[i] else place[tree, n]
            for i, ((tree, _), n) in enumerate(zip(names, given, strict=True))
        ]
        return np.array(found, np.int64)

    yes, no = nexts("nodes_truenodeids"), nexts("nodes_falsenodeids")
    followed = set(yes[~leaf].tolist()) | set(no[~leaf].tolist())
    roots = [i for i in range(len(names)) if i not in followed]
    values = a.get("nodes_values_as_tensor")
    value = _numbers(a["nodes_values"]) if values is None else np.asarray(values)
    given = a.get(f"{kind}_weights_as_tensor")
    added = _numbers(a[f"{kind}_weights"]) if given is None else np.asarray(given)
    weights = np.zeros((len(names), targets), value.dtype)
    reached = np.zeros(weights.shape, np.bool_)
    leaves = zip(a[f"{kind}_treeids"], a[f"{kind}_nodeids"], a[f"{kind}_ids"], strict=True)
    for (tree, node, target), weight in zip(leaves, added, strict=True):
        weights[place[tree, node], target] += weight
        reached[place[tree, node], target] = True
    tracks = a.get("nodes_missing_value_tracks_true") or [0] * len(names)
    forest = Forest(
        feature=np.where(leaf, 0, _numbers(a["nodes_featureids"], np.int64)),
        value=value,
        mode=mode,
        yes=yes,
        no=no,
        missing=np.array(tracks, np.bool_),
        members=None,
        weights=weights,
        reached=reached,
        roots=np.array(roots, np.int64),
    )
    if forest.met != len(names):
        raise ValueError("the nodes of a tree have a cycle, or don't hang together")
    return forest


@dataclass
class _Regressor:
    forest: Forest
    base: np.ndarray | None
    how: str
    transform: str


def _regressor(**a: Any) -> _Regressor:
    base = a.get("base_values_as_tensor", a.get("base_values"))
    return _Regressor(
        _by_names(a, "target", a["n_targets"]),
        None if base is None or not len(base) else _numbers(base),
        a.get("aggregate_function", "SUM"),
        a.get("post_transform", "NONE"),
    )


@operator("TreeEnsembleRegressor", domain=ML, prepare=_regressor)
def tree_ensemble_regressor(x: Any, *, prepared: _Regressor) -> Any:
    x = _features(x)
    y = prepared.forest.scores(x, prepared.how)
    if prepared.base is not None:
        y = y + tensor_of(prepared.base, x.device)
    return transformed(y, prepared.transform).to(dtypes.float32)


def _features(x: Any) -> Any:
    """Floats, an example in each row."""
    x = x if x.dtype.is_floating_point else x.to(dtypes.float32)
    return x.unsqueeze(0) if x.dim() == 1 else x


@dataclass
class _Classifier:
    """binary: of two classes only one, this one, has weights. shares: no weight is negative."""

    forest: Forest
    base: np.ndarray | None
    labels: np.ndarray
    transform: str
    binary: int | None
    shares: bool


def _classifier(**a: Any) -> _Classifier:
    labels = labels_of(a.get("classlabels_int64s"), a.get("classlabels_strings"))
    ids = set(a["class_ids"])
    base = a.get("base_values_as_tensor", a.get("base_values"))
    weights = a.get("class_weights_as_tensor", a.get("class_weights"))
    single = len(labels) == 2 and len(ids) == 1
    return _Classifier(
        _by_names(a, "class", max(len(labels), *(i + 1 for i in ids))),
        None if base is None or not len(base) else _numbers(base),
        labels,
        a.get("post_transform", "NONE"),
        ids.pop() if single else None,
        bool((np.asarray(weights) >= 0).all()),
    )


@operator("TreeEnsembleClassifier", domain=ML, prepare=_classifier)
def tree_ensemble_classifier(x: Any, *, prepared: _Classifier) -> Any:
    p, x = prepared, _features(x)
    scores = p.forest.scores(x, "SUM").to(dtypes.float32)
    if p.binary is None:
        if p.base is not None:
            scores = scores + tensor_of(p.base, x.device)
        return classified(scores, p.labels, p.transform)
    score = scores[:, p.binary]
    if p.base is not None:
        score = score + float(p.base[-1])
    if not p.shares:
        return classified(score.unsqueeze(1), p.labels, p.transform)
    label = labelled((score > 0.5).to(dtypes.int64), p.labels)
    if p.transform == "LOGISTIC":
        score = f.sigmoid(score)
        return label, f.stack([1 - score, score], 1)
    return label, transformed(f.stack([1 - score, score], 1), p.transform)


# ---- TreeEnsemble ------------------------------------------------------------------------------


@dataclass
class _Ensemble:
    forest: Forest
    how: str
    transform: str


def _ensemble(**a: Any) -> _Ensemble:
    """The forest of inner nodes and leaves in lists of their own."""
    inner = len(a["nodes_featureids"])
    targets, leaf_weights = a["leaf_targetids"], np.asarray(a["leaf_weights"])
    leaves = np.arange(inner, inner + len(targets))
    splits = np.asarray(a["nodes_splits"])
    mode = np.array([_MODES[m] for m in np.asarray(a["nodes_modes"])] + [_LEAF] * len(targets))

    def nexts(which: str) -> np.ndarray:
        ids = np.array(a[f"nodes_{which}nodeids"], np.int64)
        is_leaf = np.array(a[f"nodes_{which}leafs"], np.bool_)
        return np.concatenate([np.where(is_leaf, ids + inner, ids), leaves])

    def padded(values: Any, dtype: Any) -> np.ndarray:
        return np.concatenate([np.asarray(values, dtype), np.zeros(len(targets), dtype)])

    weights = np.zeros((inner + len(targets), a["n_targets"]), leaf_weights.dtype)
    reached = np.zeros(weights.shape, np.bool_)
    weights[leaves, targets] = leaf_weights
    reached[leaves, targets] = True
    tracks = a.get("nodes_missing_value_tracks_true") or [0] * inner
    forest = Forest(
        feature=padded(a["nodes_featureids"], np.int64),
        value=padded(splits, splits.dtype),
        mode=mode.astype(object),
        yes=nexts("true"),
        no=nexts("false"),
        missing=padded(tracks, np.bool_),
        members=_sets(a.get("membership_values"), mode == _MEMBER),
        weights=weights,
        reached=reached,
        roots=np.array(a["tree_roots"], np.int64),
    )
    return _Ensemble(
        forest, _SUMS[a.get("aggregate_function", 1)], _TRANSFORMS[a.get("post_transform", 0)]
    )


def _sets(values: Any, member: np.ndarray) -> np.ndarray | None:
    """[nodes, most members]: the sets of the nodes that ask for one, which NaN separates."""
    if values is None or not member.any():
        return None
    sets: list[list[float]] = [[]]
    for value in np.asarray(values).tolist():
        if value != value:
            sets.append([])
        else:
            sets[-1].append(value)
    out = np.full((len(member), max(map(len, sets))), np.nan, np.asarray(values).dtype)
    for node, each in zip(np.flatnonzero(member), sets, strict=False):
        out[node, : len(each)] = each
    return out


@operator("TreeEnsemble", domain=ML, prepare=_ensemble)
def tree_ensemble(x: Any, *, prepared: _Ensemble) -> Any:
    scores = prepared.forest.scores(x, prepared.how)
    return transformed(scores, prepared.transform).to(x.dtype)
