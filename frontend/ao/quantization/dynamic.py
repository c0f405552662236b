"""quantize_dynamic: weights of linear layers become int8, and inputs do in each call."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tilewright.ir import dtype as dtypes
from tilewright.ir.dtype import DType
from tilewright.ir.location import at_user_line

from ... import nn
from ...functions.quantized import QuantizedDType, qint8
from .qconfig import QConfig as QConfig
from .replacing import replace_layers

_RECURRENT = (nn.LSTM, nn.GRU, nn.LSTMCell, nn.GRUCell, nn.RNNCell)
_Spec = Iterable[Any] | Mapping[Any, Any] | None


def quantize_dynamic(
    model: nn.Module,
    qconfig_spec: _Spec = None,
    dtype: QuantizedDType | DType = qint8,
    mapping: Mapping[type, type] | None = None,
    inplace: bool = False,
) -> nn.Module:
    """A model for inference whose linear layers have weights of int8, with a scale for each output,
    and products of integers; of float16, if `dtype` is that.

    qconfig_spec: the types or the names of the layers, or a dictionary from these to a QConfig or
        None. By default all linear layers. Recurrent layers stay as they are.
    mapping: the class that replaces a type of layer, by its `from_float`.
    inplace: whether to change `model` itself.
    """
    from ..nn.quantized.dynamic import Linear

    made_by: dict[type, Any] = {nn.Linear: Linear, **(mapping or {})}
    if dtype is not qint8 and dtype is not dtypes.float16:
        raise ValueError(
            f"quantize_dynamic: expected dtype torch.qint8 or torch.float16, got {dtype}"
            f"{at_user_line()}"
        )
    chosen = _dtypes(qconfig_spec, dtype)
    if qconfig_spec is None:
        kept = sorted({m._get_name() for m in model.modules() if isinstance(m, _RECURRENT)})
        if kept:
            warnings.warn(f"quantize_dynamic: {', '.join(kept)} stay as they are", stacklevel=2)
    else:
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
        found: nn.Module = made_by[type(layer)].from_float(layer, of(layer, name))
        return found

    replace_layers(model, wanted, make)
    return model


def _dtypes(spec: _Spec, dtype: Any) -> dict[Any, Any]:
    """For types and names of layers the dtype of their weights; None to leave them."""
    if spec is None:
        return {nn.Linear: dtype}
    if isinstance(spec, Mapping):
        return {key: None if config is None else config.weight for key, config in spec.items()}
    return dict.fromkeys(spec, dtype)


def _require_known(chosen: Mapping[Any, Any], made_by: Mapping[type, Callable[..., Any]]) -> None:
    for key, dtype in chosen.items():
        if isinstance(key, type) and dtype is not None and key not in made_by:
            raise NotImplementedError(
                f"quantize_dynamic: expected nn.Linear, got {key.__name__}: layers of other types "
                f"are not quantized{at_user_line()}"
            )
