"""What classifiers of ai.onnx.ml have in common: labels, and transforms of scores."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.ir import dtype as dtypes

from .api import F, f
from .values import Host, array_of, tensor_of


def _probit(x: Any) -> Any:
    return f.special.erfinv(x * 2 - 1) * 2**0.5


def _softmax_of_others(x: Any) -> Any:
    """Softmax over the scores that aren't zero. Zeros stay."""
    zero = x == 0
    return f.where(zero, 0.0, F.softmax(f.where(zero, float("-inf"), x), -1))


_TRANSFORMS: dict[str, Any] = {
    "NONE": lambda x: x,
    "LOGISTIC": f.sigmoid,
    "SOFTMAX": lambda x: F.softmax(x, -1),
    "SOFTMAX_ZERO": _softmax_of_others,
    "PROBIT": _probit,
}


def transformed(scores: Any, name: str) -> Any:
    """The scores [n, classes], transformed as `post_transform` says."""
    if name not in _TRANSFORMS:
        raise ValueError(f"expected post_transform {', '.join(_TRANSFORMS)}; got {name!r}")
    return _TRANSFORMS[name](scores)


def labels_of(ints: list[int] | None, strings: list[str] | None) -> np.ndarray:
    """The labels of the classes, int64 or texts."""
    if strings:
        return np.array(strings, object)
    return np.array(ints or [], np.int64)


def labelled(places: Any, labels: np.ndarray) -> Any:
    """The label at each place. Texts are looked up on the host."""
    if labels.dtype.kind == "O":
        return Host(labels[array_of(places)])
    return tensor_of(labels, places.device)[places]


def classified(scores: Any, labels: np.ndarray, transform: str) -> tuple[Any, Any]:
    """(the labels, the transformed scores) of scores [n, classes].

    With two labels and a single column that is the second class's score, which is chosen if it is
    above zero, or above a half if it is no score but a share.
    """
    if scores.shape[1] > 1 or len(labels) != 2:
        return labelled(f.argmax(scores, 1), labels), transformed(scores, transform)
    second = scores[:, 0]
    label = labelled((second > 0).to(dtypes.int64), labels)
    if transform == "LOGISTIC":
        share = f.sigmoid(second)
        return label, f.stack([1 - share, share], 1)
    return label, transformed(f.stack([-second, second], 1), transform)
