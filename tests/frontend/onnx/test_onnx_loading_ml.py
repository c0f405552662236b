"""ai.onnx.ml beside onnxruntime: what scikit-learn's exports are made of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.onnx import OnnxLoaderError, load

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx import TensorProto
from onnx_models import RNG, model_of, normal, theirs

ML = "ai.onnx.ml"
DATA = RNG.normal(size=(40, 4)).astype(np.float32)


def made(op_type: str, outputs: str, version: int, x: np.ndarray, **attributes: Any) -> Any:
    kind = TensorProto.INT64 if x.dtype == np.int64 else TensorProto.FLOAT
    kind = TensorProto.STRING if x.dtype.kind == "O" else kind
    return model_of(
        [(f"{ML}:{op_type}", "x", outputs, attributes)],
        {"x": (kind, list(x.shape))},
        {},
        outputs,
        domains={ML: version},
    )


def compared(
    op_type: str,
    x: np.ndarray,
    outputs: str = "y",
    version: int = 3,
    tolerance: float = 2e-5,
    oracle: Any = theirs,
    **attributes: Any,
) -> None:
    proto = made(op_type, outputs, version, x, **attributes)
    given = x if x.dtype.kind == "O" else tw.tensor(x)
    found = load(proto)(given)
    for mine, other in zip(
        found if isinstance(found, tuple) else (found,), oracle(proto, x), strict=True
    ):
        array = mine if isinstance(mine, np.ndarray) else mine.numpy()
        assert array.shape == np.asarray(other).shape
        if array.dtype.kind == "O":
            assert array.tolist() == np.asarray(other).tolist()
        else:
            assert array.dtype == other.dtype
            np.testing.assert_allclose(array, other, rtol=tolerance, atol=tolerance)


# ---- features ----------------------------------------------------------------------------------

TEXTS = np.array([["a"], ["c"], ["zz"]], object)
INTS = np.array([[1, 2], [3, 9]], np.int64)
FEATURES: list[tuple[str, np.ndarray, dict[str, Any]]] = [
    ("Scaler", DATA, {"offset": [1.0, 2.0, 0.0, -1.0], "scale": [2.0, 1.0, 0.5, 3.0]}),
    ("Scaler", DATA, {"offset": [1.0], "scale": [2.0]}),
    ("Normalizer", DATA, {"norm": "L1"}),
    ("Normalizer", DATA, {"norm": "L2"}),
    ("Normalizer", np.abs(DATA), {"norm": "MAX"}),
    ("Imputer", np.array([[np.nan, 2.0], [3.0, np.nan]], np.float32),
     {"imputed_value_floats": [7.0, 8.0], "replaced_value_float": float("nan")}),
    ("Imputer", INTS, {"imputed_value_int64s": [7, 8], "replaced_value_int64": 9}),
    ("OneHotEncoder", INTS, {"cats_int64s": [1, 2, 3], "zeros": 1}),
    ("OneHotEncoder", TEXTS, {"cats_strings": ["a", "b", "c"], "zeros": 1}),
    ("LabelEncoder", TEXTS, {"keys_strings": ["a", "c"], "values_int64s": [5, 6]}),
    ("LabelEncoder", INTS, {"keys_int64s": [9, 1, 2], "values_floats": [0.5, 1.5, 2.5]}),
    ("LabelEncoder", INTS,
     {"keys_int64s": [9, 1, 2], "values_strings": ["x", "y", "z"], "default_string": "none"}),
    ("LabelEncoder", np.array([1.5, np.nan, 2.0], np.float32),
     {"keys_floats": [float("nan"), 1.5], "values_int64s": [3, 4], "default_int64": -7}),
    ("FeatureVectorizer", DATA, {"inputdimensions": [4]}),
]  # fmt: skip


@pytest.mark.parametrize(("op_type", "x", "attributes"), FEATURES)
def test_features(op_type: str, x: np.ndarray, attributes: dict[str, Any]) -> None:
    compared(op_type, x, version=4 if op_type == "LabelEncoder" else 1, **attributes)


# ---- linear models and machines ----------------------------------------------------------------


def floats(*shape: int) -> list[float]:
    return [float(v) for v in normal(*shape).reshape(-1)]


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize("classes", [2, 3])
def test_linear_classifiers(classes: int, transform: str) -> None:
    compared(
        "LinearClassifier", DATA, "y z", 1, coefficients=floats(classes, 4),
        intercepts=floats(classes), classlabels_ints=list(range(5, 5 + classes)),
        post_transform=transform,
    )  # fmt: skip


def test_a_linear_classifier_of_texts() -> None:
    compared(
        "LinearClassifier", DATA, "y z", 1, coefficients=floats(3, 4), intercepts=floats(3),
        classlabels_strings=["x", "y", "z"], post_transform="SOFTMAX",
    )  # fmt: skip


def test_linear_regressors() -> None:
    compared(
        "LinearRegressor", DATA, "y", 1, coefficients=floats(3, 4), intercepts=floats(3), targets=3
    )
    compared("LinearRegressor", DATA, "y", 1, coefficients=floats(1, 4))


@pytest.mark.parametrize("kernel", ["LINEAR", "POLY", "RBF", "SIGMOID"])
def test_support_vector_machines(kernel: str) -> None:
    shared = {"kernel_type": kernel, "kernel_params": [0.3, 0.2, 2.0]}
    compared(
        "SVMRegressor", DATA, "y", 1, coefficients=floats(6), support_vectors=floats(6, 4),
        n_supports=6, rho=[0.4], **shared,
    )  # fmt: skip
    compared(
        "SVMClassifier", DATA, "y z", 1, coefficients=floats(2, 9), support_vectors=floats(9, 4),
        vectors_per_class=[2, 4, 3], rho=floats(3), classlabels_ints=[3, 4, 5], **shared,
    )  # fmt: skip


def test_a_machine_of_two_classes() -> None:
    compared(
        "SVMClassifier", DATA, "y z", 1, coefficients=floats(1, 6), support_vectors=floats(6, 4),
        vectors_per_class=[3, 3], rho=floats(1), classlabels_ints=[0, 1], kernel_type="RBF",
        kernel_params=[0.3, 0.0, 0.0],
    )  # fmt: skip


@pytest.mark.parametrize("classes", [2, 3])
def test_machines_with_probabilities(classes: int) -> None:
    pairs = classes * (classes - 1) // 2
    compared(
        "SVMClassifier", DATA, "y z", 1, coefficients=floats(classes - 1, 6),
        support_vectors=floats(6, 4), vectors_per_class=[6 // classes] * classes, rho=floats(pairs),
        prob_a=[-1.5] * pairs, prob_b=[0.1] * pairs, classlabels_ints=list(range(classes)),
        kernel_type="RBF", kernel_params=[0.3, 0.0, 0.0],
        tolerance=5e-3,  # onnxruntime iterates until about 0.005 / 3
    )  # fmt: skip


# ---- trees -------------------------------------------------------------------------------------


def forest(
    trees: int, depth: int, mode: str = "BRANCH_LEQ"
) -> tuple[dict[str, Any], list[tuple[int, int]]]:
    """Nodes of full trees, and their leaves."""
    nodes: dict[str, list[Any]] = {
        f"nodes_{n}": []
        for n in ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids",
                  "falsenodeids", "hitrates", "missing_value_tracks_true")
    }  # fmt: skip
    leaves = []
    for tree in range(trees):
        for node in range(2 ** (depth + 1) - 1):
            leaf = node >= 2**depth - 1
            leaves += [(tree, node)] * leaf
            row = {
                "treeids": tree, "nodeids": node, "featureids": 0 if leaf else int(RNG.integers(4)),
                "values": 0.0 if leaf else float(np.float32(RNG.normal())),
                "modes": "LEAF" if leaf else mode, "truenodeids": 0 if leaf else 2 * node + 1,
                "falsenodeids": 0 if leaf else 2 * node + 2, "hitrates": 1.0,
                "missing_value_tracks_true": int(RNG.integers(2)),
            }  # fmt: skip
            for name, value in row.items():
                nodes[f"nodes_{name}"].append(value)
    return nodes, leaves


@pytest.mark.parametrize("mode", ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT"])
@pytest.mark.parametrize("how", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_tree_regressors(mode: str, how: str) -> None:
    nodes, leaves = forest(5, 3, mode)
    x = np.where(RNG.random(DATA.shape) < 0.1, np.nan, DATA).astype(np.float32)
    compared(
        "TreeEnsembleRegressor", x, "y", 3, n_targets=2, aggregate_function=how,
        target_treeids=[t for t, _ in leaves * 2], target_nodeids=[n for _, n in leaves * 2],
        target_ids=[0] * len(leaves) + [1] * len(leaves), target_weights=floats(2 * len(leaves)),
        base_values=[0.5, -1.0], **nodes,
    )  # fmt: skip


def by_reference(proto: Any, x: np.ndarray) -> list[np.ndarray]:
    """What ONNX's reference computes: of two classes onnxruntime always takes the second here."""
    from onnx.reference import ReferenceEvaluator

    return list(ReferenceEvaluator(proto).run(None, {"x": x}))


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize("classes", [2, 3])
def test_tree_classifiers(classes: int, transform: str) -> None:
    nodes, leaves = forest(6, 3)
    each = [(t, n, c) for t, n in leaves for c in range(classes)]
    shares = RNG.random((len(leaves), classes))  # as those of a random forest
    shares /= 6 * shares.sum(1, keepdims=True)
    compared(
        "TreeEnsembleClassifier", DATA, "y z", 3, classlabels_int64s=list(range(classes)),
        class_treeids=[t for t, _, _ in each], class_nodeids=[n for _, n, _ in each],
        class_ids=[c for _, _, c in each], post_transform=transform,
        class_weights=shares.reshape(-1).tolist(), oracle=by_reference, **nodes,
    )  # fmt: skip


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC"])
@pytest.mark.parametrize("positive", [True, False])
def test_tree_classifiers_with_one_score(positive: bool, transform: str) -> None:
    """As those of gradient boosting: the weights are of the second class alone."""
    nodes, leaves = forest(6, 3)
    weights = [w / 6 for w in floats(len(leaves))]
    compared(
        "TreeEnsembleClassifier", DATA, "y z", 3, classlabels_strings=["no", "yes"],
        class_treeids=[t for t, _ in leaves], class_nodeids=[n for _, n in leaves],
        class_ids=[0] * len(leaves), post_transform=transform,
        class_weights=[abs(w) for w in weights] if positive else weights, **nodes,
    )  # fmt: skip


def test_a_cycle_in_a_tree() -> None:
    nodes, leaves = forest(1, 2)
    nodes["nodes_truenodeids"][1] = 0
    proto = made(
        "TreeEnsembleRegressor", "y", 3, DATA, n_targets=1,
        target_treeids=[t for t, _ in leaves], target_nodeids=[n for _, n in leaves],
        target_ids=[0] * len(leaves), target_weights=floats(len(leaves)), **nodes,
    )  # fmt: skip
    with pytest.raises(OnnxLoaderError, match=r"TreeEnsembleRegressor.*cycle"):
        load(proto)(tw.tensor(DATA))


def test_maps() -> None:
    nodes: list[Any] = [(f"{ML}:ZipMap", "x", "y", {"classlabels_strings": ["a", "b"]})]
    proto = model_of(nodes, {"x": [2, 2]}, {}, domains={ML: 1})
    x = np.array([[0.25, 0.75], [1.0, 0.0]], np.float32)
    assert (
        load(proto)(tw.tensor(x))
        == theirs(proto, x)[0]
        == [{"a": 0.25, "b": 0.75}, {"a": 1.0, "b": 0.0}]
    )
