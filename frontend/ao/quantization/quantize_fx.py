"""prepare_fx and convert_fx: static quantization of a traced model.

A trace shows what follows what, so layers are fused, and observers and conversions put in place,
without stubs in the model. Functions that keep the scale of their input (ReLUs, pools, reshapes)
need no observer: they run on quantized tensors.
"""

from __future__ import annotations

import copy
import operator
from typing import Any

from tilewright.ir.location import at_user_line

from ... import add, nn
from ...functions.quantized import quantize_per_tensor
from ...fx import GraphModule, Node, symbolic_trace
from ...nn import functional
from ..nn.quantized.operations import Sum
from .fusing import fuse_known_modules, is_fused
from .observers import ObserverBase
from .qconfig_mapping import QConfigMapping
from .static import (
    DEFAULT_QAT_MODULE_MAPPINGS,
    DEFAULT_STATIC_QUANT_MODULE_MAPPINGS,
    FakeQuantizeBase,
)

_SUMS = (operator.add, operator.iadd, add)


def _module(gm: Any, node: Any) -> Any:
    """The module that a node calls, or None."""
    is_node = isinstance(node, Node) and node.op == "call_module"
    return gm.get_submodule(node.target) if is_node else None


def _set_module(gm: Any, name: str, module: Any) -> None:
    home, _, last = name.rpartition(".")
    setattr(gm.get_submodule(home), last, module)


def _only_user(node: Node) -> Any:
    return next(iter(node.users)) if len(node.users) == 1 else None


def _is_relu(gm: Any, node: Any) -> bool:
    return isinstance(node, Node) and (
        isinstance(_module(gm, node), nn.ReLU)
        or (node.op == "call_function" and node.target is functional.relu)
        or (node.op == "call_method" and node.target in ("relu", "relu_"))
    )


def _fuse(gm: Any, is_qat: bool) -> None:
    """Make one module of layers that follow each other and have no other user."""
    for node in list(gm.graph.nodes):
        if _module(gm, node) is None:
            continue
        chain, layers = [node], [_module(gm, node)]
        while (following := _only_user(chain[-1])) is not None:
            layer = nn.ReLU() if _is_relu(gm, following) else _module(gm, following)
            if layer is None or not is_fused((*map(type, layers), type(layer)), whole=False):
                break
            layer.training = layers[0].training
            chain.append(following)
            layers.append(layer)
        if len(chain) < 2 or not is_fused(tuple(map(type, layers))):
            continue
        _set_module(gm, node.target, fuse_known_modules(layers, is_qat)[0])
        for each in reversed(chain[1:]):
            each.replace_all_uses_with(node)
            gm.graph.erase_node(each)
    gm.graph.lint()


def _config(gm: Any, node: Node, mapping: QConfigMapping) -> Any:
    module = _module(gm, node)
    if module is None:
        return mapping.of("", node.target)
    kind = type(module[0]) if isinstance(module, nn.Sequential) else type(module)
    return mapping.of(str(node.target), kind)


def _is_observed(gm: Any, node: Node, layers: Any) -> bool:
    if node.op == "call_function":
        return node.target in _SUMS and all(isinstance(a, Node) for a in node.args[:2])
    return type(_module(gm, node)) in layers


def _keeps_scale(gm: Any, node: Node) -> bool:
    """Whether a node gives numbers at the scale of its first input."""
    if node.op == "call_module":
        return isinstance(_module(gm, node), _KEEPING)
    name = node.target if node.op == "call_method" else getattr(node.target, "__name__", "")
    return node.op != "output" and name in _KEEPING_NAMES


_KEEPING = (
    nn.ReLU, nn.MaxPool1d, nn.MaxPool2d, nn.AvgPool2d, nn.AvgPool3d, nn.AdaptiveAvgPool2d,
    nn.AdaptiveAvgPool3d, nn.Dropout, nn.Flatten, nn.Identity, nn.ReLU6, nn.Hardtanh,
)  # fmt: skip
_KEEPING_NAMES = frozenset(
    "relu relu_ max_pool1d max_pool2d avg_pool2d adaptive_avg_pool2d flatten reshape view mean "
    "permute transpose squeeze unsqueeze contiguous dropout hardtanh relu6 clamp "
    "interpolate".split()
)


def _prepared(model: nn.Module, mapping: QConfigMapping, is_qat: bool) -> Any:
    gm = symbolic_trace(copy.deepcopy(model))
    _fuse(gm, is_qat)
    layers = {**DEFAULT_STATIC_QUANT_MODULE_MAPPINGS, **DEFAULT_QAT_MODULE_MAPPINGS}
    wanted: dict[Node, Any] = {}
    for node in gm.graph.nodes:
        config = _config(gm, node, mapping) if _is_observed(gm, node, layers) else None
        if config is None:
            continue
        wanted[node] = config
        module = _module(gm, node)
        if module is not None:
            module.qconfig = config
            if is_qat and type(module) in DEFAULT_QAT_MODULE_MAPPINGS:
                made = DEFAULT_QAT_MODULE_MAPPINGS[type(module)].from_float(module)
                _set_module(gm, str(node.target), made)
    count = 0
    scaled: dict[Node, Any] = {}  # nodes whose numbers have an observer

    def observe(source: Node, observer: Any) -> None:
        nonlocal count
        name = f"activation_post_process_{count}"
        count += 1
        gm.add_submodule(name, observer)
        with gm.graph.inserting_after(source):
            seen = gm.graph.call_module(name, (source,))
        source.replace_all_uses_with(seen, lambda user: user is not seen)
        scaled[source] = scaled[seen] = observer

    for node in list(gm.graph.nodes):
        if node in wanted:
            for source in [a for a in node.args if isinstance(a, Node)]:
                if source not in scaled:
                    observe(source, wanted[node].activation())
            observe(node, wanted[node].activation())
        elif _keeps_scale(gm, node) and node.args and node.args[0] in scaled:
            observe(node, scaled[node.args[0]])  # the same one sees both
    gm.recompile()
    gm._qconfig_mapping = mapping
    return gm


def prepare_fx(
    model: nn.Module,
    qconfig_mapping: QConfigMapping | dict[str, Any],
    example_inputs: Any,
    prepare_custom_config: Any = None,
    _equalization_config: Any = None,
    backend_config: Any = None,
) -> Any:
    """A traced copy of a model in eval mode, with layers fused and observers behind those that will
    be quantized."""
    return _prepared(model, _mapping(qconfig_mapping), False)


def prepare_qat_fx(
    model: nn.Module,
    qconfig_mapping: QConfigMapping | dict[str, Any],
    example_inputs: Any,
    prepare_custom_config: Any = None,
    backend_config: Any = None,
) -> Any:
    """The same for a model in training mode, whose layers round weights and results."""
    return _prepared(model, _mapping(qconfig_mapping), True)


def _mapping(given: Any) -> QConfigMapping:
    if isinstance(given, QConfigMapping):
        return given
    made = QConfigMapping().set_global(given.get(""))
    for kind, config in given.get("object_type", ()):
        made.set_object_type(kind, config)
    for name, config in given.get("module_name", ()):
        made.set_module_name(name, config)
    return made


def fuse_fx(model: nn.Module, fuse_custom_config: Any = None, backend_config: Any = None) -> Any:
    """A traced copy of a model in eval mode, with layers fused."""
    gm = symbolic_trace(copy.deepcopy(model))
    _fuse(gm, False)
    gm.recompile()
    return gm


def convert_fx(
    graph_module: GraphModule,
    convert_custom_config: Any = None,
    _remove_qconfig: bool = True,
    qconfig_mapping: Any = None,
    backend_config: Any = None,
    keep_original_weights: bool = False,
) -> Any:
    """A copy of a prepared model whose layers are quantized, at the scales that were observed."""
    gm = copy.deepcopy(graph_module)
    if not hasattr(gm, "_qconfig_mapping"):
        raise ValueError(f"convert_fx: expected a model of prepare_fx{at_user_line()}")
    integers: set[Node] = set()  # nodes that give quantized tensors
    for node in list(gm.graph.nodes):
        observer = _module(gm, node)
        if isinstance(observer, (ObserverBase, FakeQuantizeBase)):
            if node.args[0] in integers:
                node.replace_all_uses_with(node.args[0])
                gm.graph.erase_node(node)
            else:
                _convert(gm, node, observer, integers)
        elif _keeps_scale(gm, node) and node.args and node.args[0] in integers:
            integers.add(node)
        else:
            _dequantize_inputs(gm, node, integers)
    gm.graph.lint()
    gm.recompile()
    for name, module in list(gm.named_children()):
        if isinstance(module, (ObserverBase, FakeQuantizeBase)):
            delattr(gm, name)
    return gm


def _convert(gm: Any, node: Node, observer: Any, integers: set[Node]) -> None:
    """Take an observer away: what it saw becomes quantized."""
    (source,) = node.args
    assert isinstance(source, Node)
    layer = _module(gm, source)
    made = None if layer is None else DEFAULT_STATIC_QUANT_MODULE_MAPPINGS.get(type(layer))
    if made is not None and hasattr(layer, "qconfig"):
        layer.activation_post_process = observer
        _set_module(gm, str(source.target), made.from_float(layer))
    elif source.op == "call_function" and source.target in _SUMS:
        scale, zero = observer.calculate_qparams()
        name = f"{source.name}_scaled"
        functional_module = Sum(float(scale), int(zero))
        gm.add_submodule(name, functional_module)
        source.op, source.target, source.kwargs = "call_module", name, {}
    else:
        scale, zero = observer.calculate_qparams()
        with gm.graph.inserting_after(source):
            made_node = gm.graph.call_function(
                quantize_per_tensor, (source, float(scale), int(zero), observer.dtype)
            )
        node.replace_all_uses_with(made_node)
        gm.graph.erase_node(node)
        integers.add(made_node)
        return
    node.replace_all_uses_with(source)
    gm.graph.erase_node(node)
    integers.add(source)


def _dequantize_inputs(gm: Any, node: Node, integers: set[Node]) -> None:
    """Give a node floats, if it doesn't take quantized tensors."""
    if _takes_integers(gm, node):
        return
    for source in [n for n in node.all_input_nodes if n in integers]:
        with gm.graph.inserting_before(node):
            made = gm.graph.call_method("dequantize", (source,))
        node.replace_input_with(source, made)


def _takes_integers(gm: Any, node: Node) -> bool:
    """Whether an observer follows a node, which will be quantized itself."""
    module = _module(gm, node)
    is_known = node.target in _SUMS if module is None else bool(getattr(module, "qconfig", None))
    return is_known and any(
        isinstance(_module(gm, user), (ObserverBase, FakeQuantizeBase)) for user in node.users
    )
