"""quantize_dynamic: weights of layers become int8, and inputs of products do in each call."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tilewright.ir import dtype as dtypes
from tilewright.ir.dtype import DType
from tilewright.ir.location import at_user_line

from ... import nn
from ...functions.quantized import QuantizedDType, qint8, quint8
from .qconfig import QConfig as QConfig
from .replacing import replace_layers

_Spec = Iterable[Any] | Mapping[Any, Any] | None
_PRODUCTS = (nn.Linear, nn.LSTM, nn.GRU, nn.LSTMCell, nn.GRUCell, nn.RNNCell)
_TABLES = (nn.EmbeddingBag, nn.Embedding)


def get_default_dynamic_quant_module_mappings() -> dict[Any, Any]:
    """Layers -> those with weights that are rounded once."""
    from ..nn import quantized
    from ..nn.quantized import dynamic

    made = {kind: getattr(dynamic, kind.__name__) for kind in _PRODUCTS}
    return made | {kind: getattr(quantized, kind.__name__) for kind in _TABLES}


def quantize_dynamic(
    model: nn.Module,
    qconfig_spec: _Spec = None,
    dtype: QuantizedDType | DType = qint8,
    mapping: Mapping[type, type] | None = None,
    inplace: bool = False,
) -> nn.Module:
    """A model for inference whose linear and recurrent layers have weights of int8 with a scale for
    each output, and products of integers; of float16, if `dtype` is that. With quint8 embeddings
    have weights of it.

    qconfig_spec: the types or the names of the layers, or a dictionary from these to a QConfig or
        None. By default all layers of the types that `dtype` is for.
    mapping: the class that replaces a type of layer, by its `from_float`.
    inplace: whether to change `model` itself.
    """
    made_by = {**get_default_dynamic_quant_module_mappings(), **(mapping or {})}
    if dtype not in (qint8, dtypes.float16, quint8):
        raise ValueError(
            f"quantize_dynamic: expected dtype torch.qint8, torch.float16 or torch.quint8, got "
            f"{dtype}{at_user_line()}"
        )
    chosen = _dtypes(qconfig_spec, dtype)
    if qconfig_spec is not None:
        _require_known(chosen, made_by)
    if not inplace:
        model = copy.deepcopy(model)
    model.eval()

    def of(layer: nn.Module, name: str) -> Any:
        """The dtype for a layer: by its name, that of a parent, or its type."""
        parts = name.split(".")
        for end in range(len(parts), 0, -1):
            if (found := ".".join(parts[:end])) in chosen:
                return chosen[found]
        return chosen.get(type(layer))

    def wanted(layer: nn.Module, name: str) -> bool:
        return type(layer) in made_by and of(layer, name) is not None

    def make(layer: nn.Module, name: str) -> nn.Module:
        made, kind = made_by[type(layer)], of(layer, name)
        found: nn.Module = (
            made.from_float(layer) if kind is quint8 else made.from_float(layer, kind)
        )
        return found

    replace_layers(model, wanted, make)
    return model


def _dtypes(spec: _Spec, dtype: Any) -> dict[Any, Any]:
    """For types and names of layers the dtype of their weights; None to leave them."""
    if spec is None:
        return dict.fromkeys(_TABLES if dtype is quint8 else _PRODUCTS, dtype)
    if isinstance(spec, Mapping):
        return {key: config and config.weight().dtype for key, config in spec.items()}
    return dict.fromkeys(spec, dtype)


def _require_known(chosen: Mapping[Any, Any], made_by: Mapping[type, Callable[..., Any]]) -> None:
    for key, dtype in chosen.items():
        if isinstance(key, type) and dtype is not None and key not in made_by:
            raise NotImplementedError(
                f"quantize_dynamic: expected one of {', '.join(k.__name__ for k in made_by)}, got "
                f"{key.__name__}: layers of other types are not quantized{at_user_line()}"
            )
