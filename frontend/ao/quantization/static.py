"""Static quantization: observers measure the results of layers, then the layers become quantized.

fuse_modules -> prepare -> run examples -> convert              (after training)
fuse_modules_qat -> prepare_qat -> train -> convert             (with rounded numbers meanwhile)
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

from ... import nn
from ..nn import intrinsic, qat, quantizable, quantized
from ..nn.intrinsic import qat as intrinsic_qat
from ..nn.intrinsic import quantized as intrinsic_quantized
from ..nn.quantized import observed as from_observed
from ..nn.quantized.layers import DeQuantize, Quantize
from .fake_quantize import (
    FakeQuantizeBase,
    default_fixed_qparams_range_0to1_fake_quant,
    default_fixed_qparams_range_neg1to1_fake_quant,
)
from .observers import ObserverBase
from .stubs import DeQuantStub, QuantStub

_SIZES = (1, 2, 3)


def _by_size(of: Any, to: Any, before: str, after: str = "") -> dict[Any, Any]:
    return {getattr(of, f"{before}{n}d"): getattr(to, f"{after or before}{n}d") for n in _SIZES}


DEFAULT_STATIC_QUANT_MODULE_MAPPINGS: dict[Any, Any] = {
    QuantStub: Quantize,
    DeQuantStub: DeQuantize,
    nn.Linear: quantized.Linear,
    nn.ReLU6: quantized.ReLU6,
    **{
        getattr(nn, name): getattr(quantized, name)
        for name in (
            "BatchNorm2d BatchNorm3d Dropout ELU Embedding EmbeddingBag GroupNorm Hardswish "
            "InstanceNorm1d InstanceNorm2d InstanceNorm3d LayerNorm LeakyReLU PReLU"
        ).split()
    },
    intrinsic.BNReLU2d: intrinsic_quantized.BNReLU2d,
    intrinsic.BNReLU3d: intrinsic_quantized.BNReLU3d,
    intrinsic_qat.LinearBn1d: quantized.Linear,
    **_by_size(nn, quantized, "Conv"),
    **_by_size(nn, quantized, "ConvTranspose"),
    quantized.FloatFunctional: quantized.QFunctional,
    intrinsic.LinearReLU: intrinsic_quantized.LinearReLU,
    **_by_size(intrinsic, intrinsic_quantized, "ConvReLU"),
    qat.Linear: quantized.Linear,
    **_by_size(qat, quantized, "Conv"),
    intrinsic_qat.LinearReLU: intrinsic_quantized.LinearReLU,
    **_by_size(intrinsic_qat, intrinsic_quantized, "ConvReLU"),
    **_by_size(intrinsic_qat, quantized, "ConvBn", "Conv"),
    **_by_size(intrinsic_qat, intrinsic_quantized, "ConvBnReLU", "ConvReLU"),
}
"""Layers -> the quantized ones."""
OBSERVED_MODULES: dict[Any, Any] = {
    nn.LSTM: quantizable.LSTM,
    nn.MultiheadAttention: quantizable.MultiheadAttention,
}
"""Layers -> those that observe the results of their parts."""
QUANTIZED_MODULES: dict[Any, Any] = {
    quantizable.LSTM: from_observed.LSTM,
    quantizable.MultiheadAttention: from_observed.MultiheadAttention,
}
"""Layers that observe their parts -> the quantized ones."""
DEFAULT_QAT_MODULE_MAPPINGS: dict[Any, Any] = {
    nn.Linear: qat.Linear,
    **_by_size(nn, qat, "Conv"),
    intrinsic.LinearReLU: intrinsic_qat.LinearReLU,
    intrinsic.LinearBn1d: intrinsic_qat.LinearBn1d,
    **_by_size(intrinsic, intrinsic_qat, "ConvReLU"),
    **_by_size(intrinsic, intrinsic_qat, "ConvBn"),
    **_by_size(intrinsic, intrinsic_qat, "ConvBnReLU"),
}
"""Layers -> those that round their weights in training."""
_OBSERVED = {
    *DEFAULT_STATIC_QUANT_MODULE_MAPPINGS,
    *DEFAULT_QAT_MODULE_MAPPINGS,
    *DEFAULT_QAT_MODULE_MAPPINGS.values(),
} - {DeQuantStub, nn.ReLU6}
"""Layers whose results are observed."""

_WITH_KNOWN_RANGE = {
    nn.Hardsigmoid: default_fixed_qparams_range_0to1_fake_quant,
    nn.Sigmoid: default_fixed_qparams_range_0to1_fake_quant,
    nn.Softmax: default_fixed_qparams_range_0to1_fake_quant,
    nn.Tanh: default_fixed_qparams_range_neg1to1_fake_quant,
}
"""Layers whose results are rounded in training to the steps of their range."""

Observer = ObserverBase | FakeQuantizeBase


def get_default_static_quant_module_mappings() -> dict[Any, Any]:
    return dict(DEFAULT_STATIC_QUANT_MODULE_MAPPINGS)


def get_default_qat_module_mappings() -> dict[Any, Any]:
    return dict(DEFAULT_QAT_MODULE_MAPPINGS)


def propagate_qconfig_(
    module: nn.Module, qconfig_dict: Any = None, prepare_custom_config_dict: Any = None
) -> None:
    """Give each module below `module` a qconfig: the one that it has, that of its name in
    `qconfig_dict`, that of its type, or that of the module around it."""
    chosen = dict(qconfig_dict or {})

    def walk(each: Any, name: str, around: Any) -> None:
        config = chosen.get(name, chosen.get(type(each), around))
        config = getattr(each, "qconfig", config)
        each.qconfig = config
        for part, child in each.named_children():
            walk(child, f"{name}.{part}" if name else part, config)

    walk(module, "", chosen.get(""))


def _device(module: nn.Module) -> Any:
    return next((p.device for p in (*module.parameters(), *module.buffers())), None)


def _observe(module: Any, make: Any = None) -> None:
    """Let an observer see the results of a module. make: makes it in the qconfig's place."""
    if not module.qconfig or (
        hasattr(module, "activation_post_process")
        and not isinstance(module, quantized.FloatFunctional)
    ):
        return
    observer = (make or module.qconfig.activation)()
    device = _device(module)
    module.activation_post_process = observer if device is None else observer.to(device)
    if isinstance(module, quantized.FloatFunctional):
        return

    def see(layer: Any, inputs: Any, output: Any) -> Any:
        return layer.activation_post_process(output)

    module._observed = module.register_forward_hook(see)


def _add_observers(module: nn.Module, observed: Any) -> None:
    for name, child in list(module.named_children()):
        made = OBSERVED_MODULES.get(type(child)) if getattr(child, "qconfig", None) else None
        if made is not None:
            setattr(module, name, made.from_float(child))
            continue
        if isinstance(child, (ObserverBase, FakeQuantizeBase, nn.Dropout)):
            continue
        if isinstance(child, quantized.FloatFunctional) or type(child) in observed:
            _observe(child)
        elif child.training and type(child) in _WITH_KNOWN_RANGE:
            _observe(child, _WITH_KNOWN_RANGE[type(child)])
        else:
            _add_observers(child, observed)


def prepare(
    model: nn.Module,
    inplace: bool = False,
    allow_list: Any = None,
    observer_non_leaf_module_list: Any = None,
    prepare_custom_config_dict: Any = None,
) -> nn.Module:
    """A copy of a model with observers behind the layers that have a qconfig (`model.qconfig`, or
    their own)."""
    if not inplace:
        model = copy.deepcopy(model)
    propagate_qconfig_(model)
    observed = _OBSERVED if allow_list is None else set(allow_list)
    if type(model) in observed:
        _observe(model)
    else:
        _add_observers(model, observed | set(observer_non_leaf_module_list or ()))
    return model


def prepare_qat(
    model: nn.Module, mapping: Mapping[Any, Any] | None = None, inplace: bool = False
) -> nn.Module:
    """A copy of a model in training mode, whose layers round their weights and results."""
    if not model.training:
        raise AssertionError("prepare_qat only works on models in training mode")
    if not inplace:
        model = copy.deepcopy(model)
    mapping = DEFAULT_QAT_MODULE_MAPPINGS if mapping is None else mapping
    propagate_qconfig_(model)
    _swap(model, mapping)
    return prepare(model, inplace=True, observer_non_leaf_module_list=set(mapping.values()))


def get_static_quant_module_class(
    float_module_class: Any,
    additional_static_quant_mapping: Mapping[Any, Any] | None = None,
    is_reference: bool = False,
) -> Any:
    """The quantized class for a class of layers."""
    known = {**DEFAULT_STATIC_QUANT_MODULE_MAPPINGS, **(additional_static_quant_mapping or {})}
    if float_module_class not in known:
        raise AssertionError(
            f"Floating point module class {float_module_class} does not have a corresponding "
            "quantized module class"
        )
    return known[float_module_class]


def swap_module(
    mod: Any,
    mapping: Mapping[Any, Any],
    custom_module_class_mapping: Any = None,
    use_precomputed_fake_quant: bool = False,
) -> Any:
    """The quantized module for a module that has a qconfig, if `mapping` has its type."""
    if type(mod) in QUANTIZED_MODULES and getattr(mod, "qconfig", None):
        return _carried(mod, QUANTIZED_MODULES[type(mod)].from_observed(mod))
    made = mapping.get(type(mod)) if getattr(mod, "qconfig", None) else None
    return mod if made is None else _carried(mod, made.from_float(mod))


def _swap(model: Any, mapping: Mapping[Any, Any]) -> None:
    for name, child in list(model.named_children()):
        made = swap_module(child, mapping)
        if made is child:
            _swap(child, mapping)
        else:
            setattr(model, name, made)


def _carried(child: Any, made: Any) -> Any:
    """A module in the place of `child`, whose other hooks it takes."""
    own = getattr(child, "_observed", None)
    skipped = None if own is None else own.id
    for hook in child._forward_pre_hooks.values():
        made.register_forward_pre_hook(hook)
    for key, hook in child._forward_hooks.items():
        if key != skipped:
            made.register_forward_hook(hook)
    return made


def convert(
    module: nn.Module,
    mapping: Mapping[Any, Any] | None = None,
    inplace: bool = False,
    remove_qconfig: bool = True,
    is_reference: bool = False,
    convert_custom_config_dict: Any = None,
    use_precomputed_fake_quant: bool = False,
) -> nn.Module:
    """A copy of a prepared model whose layers are quantized, at the scales that were observed."""
    if is_reference:
        raise NotImplementedError("convert: reference modules of other backends aren't there")
    if not inplace:
        module = copy.deepcopy(module)
    _swap(module, DEFAULT_STATIC_QUANT_MODULE_MAPPINGS if mapping is None else mapping)
    if remove_qconfig:
        for each in module.modules():
            each.__dict__.pop("qconfig", None)
            if (handle := each.__dict__.pop("_observed", None)) is not None:
                handle.remove()
            each._modules.pop("activation_post_process", None) if not isinstance(
                each, (quantized.FloatFunctional, quantized.QFunctional)
            ) else None
    return module


def quantize(
    model: nn.Module,
    run_fn: Callable[..., Any],
    run_args: Any,
    mapping: Mapping[Any, Any] | None = None,
    inplace: bool = False,
) -> nn.Module:
    """Prepare a model, call `run_fn(model, *run_args)` with examples, and convert it."""
    if not inplace:
        model = copy.deepcopy(model)
    model.eval()
    prepare(model, inplace=True)
    run_fn(model, *run_args)
    return convert(model, mapping, inplace=True)


def quantize_qat(
    model: nn.Module, run_fn: Callable[..., Any], run_args: Any, inplace: bool = False
) -> nn.Module:
    """Prepare a model for training, call `run_fn(model, *run_args)`, and convert it."""
    if not inplace:
        model = copy.deepcopy(model)
    model.train()
    prepare_qat(model, inplace=True)
    run_fn(model, *run_args)
    return convert(model, inplace=True)


class QuantWrapper(nn.Module):
    """A module between a QuantStub and a DeQuantStub."""

    def __init__(self, module: nn.Module):
        super().__init__()
        config = getattr(module, "qconfig", None)
        self.add_module("quant", QuantStub(config))
        self.add_module("dequant", DeQuantStub(config))
        self.add_module("module", module)
        self.train(module.training)

    def forward(self, X: Any) -> Any:
        return self.dequant(self.module(self.quant(X)))


def add_quant_dequant(module: Any) -> Any:
    """Wrap the layers that have a qconfig, so that they take and give floats."""
    if not list(module.children()) and getattr(module, "qconfig", None):
        return QuantWrapper(module)
    for name, child in module.named_children():
        setattr(module, name, add_quant_dequant(child))
    return module
