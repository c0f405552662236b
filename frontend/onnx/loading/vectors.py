"""Features of ai.onnx.ml: scaled, filled in, encoded, put together; labels and maps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.ir import dtype as dtypes

from .api import f
from .scores import labels_of
from .strings import texts
from .table import ML, operator
from .values import Host, array_of, on_device, tensor_of


def _row(values: list[float], device: Any) -> Any:
    return tensor_of(np.array(values, np.float32), device)


@operator("Scaler", domain=ML)
def scaler(x: Any, *, offset: list[float], scale: list[float]) -> Any:
    return (x.to(dtypes.float32) - _row(offset, x.device)) * _row(scale, x.device)


@operator("Normalizer", domain=ML)
def normalizer(x: Any, *, norm: str = "MAX") -> Any:
    """Each row divided by its largest element, its sum of magnitudes or its length."""
    x = x.to(dtypes.float32)
    sizes = {
        "MAX": lambda: f.amax(x, -1, True),
        "L1": lambda: x.abs().sum(-1, keepdim=True),
        "L2": lambda: f.sqrt((x * x).sum(-1, keepdim=True)),
    }
    size = sizes[norm]()
    return f.where(size == 0, x, x / size)


@operator("Binarizer", domain=ML)
def binarizer(x: Any, *, threshold: float = 0.0) -> Any:
    return (x > threshold).to(x.dtype)


@operator("Imputer", domain=ML)
def imputer(
    x: Any,
    *,
    imputed_value_floats: list[float] | None = None,
    imputed_value_int64s: list[int] | None = None,
    replaced_value_float: float = 0.0,
    replaced_value_int64: int = 0,
) -> Any:
    """x with other values where it has the one that stands for nothing."""
    floats = imputed_value_floats is not None
    values = imputed_value_floats if imputed_value_floats is not None else imputed_value_int64s
    filler = tensor_of(np.array(values), x.device).to(x.dtype)
    if floats and replaced_value_float != replaced_value_float:
        return f.where(f.isnan(x), filler, x)
    return f.where(x == (replaced_value_float if floats else replaced_value_int64), filler, x)


@operator("FeatureVectorizer", domain=ML)
def feature_vectorizer(*xs: Any, inputdimensions: list[int] | None = None) -> Any:
    """The features of all inputs side by side."""
    flat = [x.to(dtypes.float32).reshape(x.shape[0], -1) for x in xs]
    sizes = inputdimensions or [x.shape[1] for x in flat]
    return f.cat([x[:, :n] for x, n in zip(flat, sizes, strict=True)], 1)


@operator("ArrayFeatureExtractor", domain=ML, either=("x",), known="function")
def array_feature_extractor(x: Any, places: Any, device: Any = None) -> Any:
    """The chosen elements of the last dimension, as at least a row."""
    index = places.reshape(-1)
    if isinstance(x, Host) and x.array.dtype.kind in "OSUT":
        found = x.array[..., array_of(index)]
        return found.reshape(1, -1) if x.array.ndim == 1 else found
    tensor = on_device(x, device)
    found = f.index_select(tensor, -1, index.to(dtypes.int64))
    return found.reshape(1, -1) if tensor.dim() == 1 else found


@operator("OneHotEncoder", domain=ML, either=("x",), known="function")
def one_hot_encoder(
    x: Any,
    *,
    cats_int64s: list[int] | None = None,
    cats_strings: list[str] | None = None,
    zeros: int = 1,
    device: Any = None,
) -> Any:
    """A new dimension with 1 at the category. zeros: whether an unknown one is no error."""
    if cats_strings:
        names = texts(array_of(x))
        hot = (names[..., None] == np.array(cats_strings, object)).astype(np.float32)
        if not zeros and not hot.any(-1).all():
            raise ValueError("a category that cats_strings doesn't have")
        return hot
    tensor = on_device(x, device)
    categories = tensor_of(np.array(cats_int64s, np.int64), tensor.device)
    found = tensor.to(dtypes.int64).unsqueeze(-1) == categories
    if not zeros and not bool(found.any(-1).all()):
        raise ValueError("a category that cats_int64s doesn't have")
    return found.to(dtypes.float32)


# ---- labels ----------------------------------------------------------------------------------


@dataclass
class _Labels:
    """keys, values: arrays of the same length, texts as objects. default: of an unknown key."""

    keys: np.ndarray
    values: np.ndarray
    default: np.ndarray

    def __post_init__(self) -> None:
        if self.keys.shape != self.values.shape:
            raise ValueError(f"{self.keys.size} keys and {self.values.size} values")
        self.known = dict(zip(self.keys.tolist(), self.values.tolist(), strict=True))
        self.of_nan = self.default
        if self.keys.dtype.kind == "f":
            for value in self.values[np.isnan(self.keys)][-1:]:
                self.of_nan = value

    def on_host(self, array: np.ndarray) -> np.ndarray:
        keys = texts(array) if self.keys.dtype.kind == "O" else array
        found = [
            self.of_nan if key != key else self.known.get(key, self.default)
            for key in keys.reshape(-1).tolist()
        ]
        out = np.empty(len(found), self.values.dtype)
        out[:] = found
        return out.reshape(array.shape)

    def on_tensor(self, x: Any) -> Any:
        """By a search among the sorted keys."""
        order = np.argsort(self.keys, kind="stable")
        keys, values = self.keys[order], self.values[order]
        last = np.append(keys[1:] != keys[:-1], True) & (keys == keys)  # of equal keys the last
        keys, values = (tensor_of(a[last], x.device) for a in (keys, values))
        default = tensor_of(np.asarray(self.default, self.values.dtype), x.device)
        if not keys.numel():
            return default.expand(x.shape)
        place = f.clamp(f.searchsorted(keys, x.contiguous()), max=keys.numel() - 1)
        found = f.where(keys[place] == x, values[place], default)
        if self.keys.dtype.kind != "f":
            return found
        of_nan = tensor_of(np.asarray(self.of_nan, self.values.dtype), x.device)
        return f.where(f.isnan(x), of_nan, found)


_KINDS: dict[str, Any] = {"floats": np.float32, "int64s": np.int64, "strings": object}
_DEFAULTS: dict[str, Any] = {"f": -0.0, "i": -1, "O": "_Unused"}


def _labels(**a: Any) -> _Labels:
    """Of opset 2 and newer: keys and values of any kinds."""
    found: dict[str, np.ndarray] = {}
    for part in ("keys", "values"):
        for kind, dtype in _KINDS.items():
            if f"{part}_{kind}" in a:
                found[part] = np.array(a[f"{part}_{kind}"], dtype)
        if f"{part}_tensor" in a:
            array = np.asarray(a[f"{part}_tensor"])
            found[part] = texts(array) if array.dtype.kind in "OSU" else array
    values = found["values"]
    letter = values.dtype.kind
    name = {"f": "default_float", "i": "default_int64", "O": "default_string"}[letter]
    default = np.asarray(a.get(name, _DEFAULTS[letter]), values.dtype)
    if "default_tensor" in a:
        default = np.asarray(a["default_tensor"]).reshape(())
        default = texts(default) if letter == "O" else default
    return _Labels(found["keys"], values, default.item() if letter == "O" else default)


@operator("LabelEncoder", domain=ML, since=2, either=("x",), known="function", prepare=_labels)
def label_encoder(x: Any, *, prepared: _Labels) -> Any:
    """Each key's value. Texts are looked up on the host."""
    if isinstance(x, Host) or "O" in (prepared.keys.dtype.kind, prepared.values.dtype.kind):
        return prepared.on_host(array_of(x))
    return prepared.on_tensor(x)


def _places(
    *, classes_strings: list[str], default_int64: int = -1, default_string: str = "_Unused"
) -> tuple[_Labels, _Labels]:
    """Of opset 1: texts to their places, and back."""
    names = np.array(classes_strings, object)
    line = np.arange(len(names))
    forward = _Labels(names, line, np.asarray(default_int64))
    return forward, _Labels(line, names, default_string)  # type: ignore[arg-type]


@operator("LabelEncoder", domain=ML, either=("x",), known="function", prepare=_places)
def label_encoder_by_place(x: Any, *, prepared: tuple[_Labels, _Labels]) -> Any:
    array = array_of(x)
    return prepared[array.dtype.kind in "iu"].on_host(array)


def _categories(
    *,
    cats_int64s: list[int],
    cats_strings: list[str],
    default_int64: int = -1,
    default_string: str = "_Unused",
) -> tuple[_Labels, _Labels]:
    names, numbers = np.array(cats_strings, object), np.array(cats_int64s, np.int64)
    forward = _Labels(names, numbers, np.asarray(default_int64))
    return forward, _Labels(numbers, names, default_string)  # type: ignore[arg-type]


operator("CategoryMapper", domain=ML, either=("x",), known="function", prepare=_categories)(
    label_encoder_by_place
)


# ---- maps ------------------------------------------------------------------------------------


@operator("ZipMap", domain=ML, known="never")
def zip_map(
    x: Any,
    *,
    classlabels_int64s: list[int] | None = None,
    classlabels_strings: list[str] | None = None,
) -> Any:
    """A dict from labels to scores for each example."""
    labels = labels_of(classlabels_int64s, classlabels_strings).tolist()
    return [dict(zip(labels, row, strict=True)) for row in array_of(x).tolist()]


@operator("DictVectorizer", domain=ML, either=("x",), known="never")
def dict_vectorizer(
    x: Any,
    *,
    int64_vocabulary: list[int] | None = None,
    string_vocabulary: list[str] | None = None,
) -> Any:
    """The values of a dict, in the order of the vocabulary; zero for those that it lacks."""
    vocabulary: Any = string_vocabulary or int64_vocabulary
    return np.array([[x.get(word, 0) for word in vocabulary]])


@operator("CastMap", domain=ML, either=("x",), known="never")
def cast_map(
    x: Any, *, cast_to: str = "TO_FLOAT", map_form: str = "DENSE", max_map: int = 1
) -> Any:
    """The values of a dict by rising keys; with map_form SPARSE the keys are the places."""
    dtype = {"TO_FLOAT": np.float32, "TO_INT64": np.int64, "TO_STRING": object}[cast_to]
    if map_form == "DENSE":
        return np.array([[x[key] for key in sorted(x)]], dtype)
    out = np.zeros((1, max_map), dtype)
    for key, value in x.items():
        if 0 <= key < max_map:
            out[0, key] = value
    return out
