"""torch.fx.experimental.optimization: batch norms become part of convolutions and layers."""

from __future__ import annotations

import copy

from ... import nn
from ...nn import Module
from ...nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval
from .._symbolic_trace import symbolic_trace
from ..graph_module import GraphModule

__all__ = ["fuse", "remove_dropout"]

_PAIRS = (
    (nn.Conv1d, nn.BatchNorm1d, fuse_conv_bn_eval),
    (nn.Conv2d, nn.BatchNorm2d, fuse_conv_bn_eval),
    (nn.Conv3d, nn.BatchNorm3d, fuse_conv_bn_eval),
    (nn.Linear, nn.BatchNorm1d, fuse_linear_bn_eval),
)


def fuse(model: Module, inplace: bool = False, no_trace: bool = False) -> Module:
    """The model in evaluation mode with the batch norms that follow convolutions, or linear layers,
    in their weights. inplace: change the model's own modules. no_trace: it is a GraphModule."""
    if not inplace:
        model = copy.deepcopy(model)
    made = model if no_trace and isinstance(model, GraphModule) else symbolic_trace(model)
    modules = dict(made.named_modules())
    for node in list(made.graph.nodes):
        before = node.args[0] if node.op == "call_module" and node.args else None
        if getattr(before, "op", None) != "call_module" or len(before.users) > 1:  # type: ignore[union-attr]
            continue
        layer, norm = modules[str(before.target)], modules[str(node.target)]  # type: ignore[union-attr]
        for kind, after, function in _PAIRS:
            if type(layer) is kind and type(norm) is after and norm.track_running_stats:
                path = str(before.target)  # type: ignore[union-attr]
                fused = function(layer, norm)  # type: ignore[arg-type]
                owner, _, name = path.rpartition(".")
                setattr(made.get_submodule(owner) if owner else made, name, fused)
                modules[path] = fused
                node.replace_all_uses_with(before)  # type: ignore[arg-type]
                made.graph.erase_node(node)
                break
    made.delete_all_unused_submodules()
    made.recompile()
    return made


def remove_dropout(model: Module) -> Module:
    """The model without its dropout layers."""
    made = symbolic_trace(model)
    modules = dict(made.named_modules())
    for node in list(made.graph.nodes):
        if node.op == "call_module" and isinstance(modules[str(node.target)], nn.Dropout):
            node.replace_all_uses_with(node.args[0])
            made.graph.erase_node(node)
    made.recompile()
    return made
