"""quantize_dynamic: weights of layers become int8, and inputs of products do in each call."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

from tilewright.ir import dtype as dtypes
from tilewright.ir.dtype import DType
from tilewright.ir.location import at_user_line

from ... import nn
from ...functions.quantized import QuantizedDType, qint8, quint4x2, quint8
from . import qconfig
from .qconfig import QConfig as QConfig

_Spec = Iterable[Any] | Mapping[Any, Any] | None
_PRODUCTS = (nn.Linear, nn.LSTM, nn.GRU, nn.LSTMCell, nn.GRUCell, nn.RNNCell)
_TABLES = (nn.EmbeddingBag, nn.Embedding)
_DEFAULTS: dict[Any, tuple[QConfig, tuple[type, ...]]] = {
    qint8: (qconfig.default_dynamic_qconfig, _PRODUCTS),
    dtypes.float16: (qconfig.float16_dynamic_qconfig, _PRODUCTS),
    quint8: (qconfig.float_qparams_weight_only_qconfig, _TABLES),
    quint4x2: (qconfig.float_qparams_weight_only_qconfig_4bit, (nn.EmbeddingBag,)),
}
"""Types of weights -> (the qconfig for them, the layers that get it when nobody names any)."""


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
    mapping: Mapping[Any, Any] | None = None,
    inplace: bool = False,
) -> nn.Module:
    """A model for inference whose linear and recurrent layers have weights of int8 and products of
    integers; weights of float16, if `dtype` is that. With quint8 embeddings have weights of it.

    A weight has one scale, unless its qconfig says otherwise (`per_channel_dynamic_qconfig`).

    qconfig_spec: the types or the names of the layers, or a dictionary from these to a QConfig or
        None. By default all layers of the types that `dtype` is for.
    mapping: the classes that replace layers of a type, by their `from_float`, which finds the
        qconfig as an attribute of the layer. Layers of other types stay.
    inplace: whether to change `model` itself.
    """
    from .static import convert, propagate_qconfig_  # its tables hold layers, which import qconfig

    config: Any = qconfig_spec
    if not isinstance(config, Mapping):
        if dtype not in _DEFAULTS:
            raise (ValueError if config is None else RuntimeError)(
                f"quantize_dynamic: expected dtype torch.qint8, torch.float16, torch.quint8 or "
                f"torch.quint4x2, got {dtype}: a dictionary with QConfigs has other types"
                f"{at_user_line()}"
            )
        default, kinds = _DEFAULTS[dtype]
        config = dict.fromkeys(kinds if config is None else config, default)
    if not inplace:
        model = copy.deepcopy(model)
    model.eval()
    propagate_qconfig_(model, config)
    if mapping is None:
        mapping = get_default_dynamic_quant_module_mappings()
    return convert(model, mapping, inplace=True)
