"""The layers of PyTorch's database of modules, and their arguments as tilewright's."""

from __future__ import annotations

from typing import Any

from databases import entries

import tilewright as tw

RANDOM = ("Dropout", "RReLU", "FractionalMaxPool")
"""Layers that draw numbers in training, as their names begin or end: compared in evaluation."""


INFOS = {info.formatted_name: info for info in entries("common_modules", "module_db")}


def translated(value: Any, torch: Any) -> Any:
    """An argument of PyTorch's as one of ours."""
    if isinstance(value, torch.Tensor):
        made = tw.tensor(value.detach().numpy())
        return made.requires_grad_() if value.requires_grad else made
    if isinstance(value, torch.dtype):
        return getattr(tw, str(value).removeprefix("torch."))
    if isinstance(value, (list, tuple)):
        return type(value)(translated(v, torch) for v in value)
    if isinstance(value, dict):
        return {k: translated(v, torch) for k, v in value.items()}
    if isinstance(value, torch.nn.TransformerEncoderLayer):
        return _layer(value)
    name = getattr(value, "__name__", "")
    if callable(value) and getattr(torch.nn.functional, name, None) is value:
        return getattr(tw.nn.functional, name)
    return value


def _layer(theirs: Any) -> Any:
    """A layer like one of PyTorch's, which TransformerEncoder is made of."""
    activation = theirs.activation
    if not hasattr(activation, "__name__"):
        activation = getattr(tw.nn, type(activation).__name__)()
    else:
        activation = getattr(tw.nn.functional, activation.__name__)
    return tw.nn.TransformerEncoderLayer(
        theirs.self_attn.embed_dim,
        theirs.self_attn.num_heads,
        theirs.linear1.out_features,
        theirs.dropout.p,
        activation,
        layer_norm_eps=theirs.norm1.eps,
        batch_first=theirs.self_attn.batch_first,
        norm_first=theirs.norm_first,
        bias=theirs.linear1.bias is not None,
    )


def flat(value: Any, kind: type) -> list[Any]:
    if isinstance(value, kind):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [x for v in value for x in flat(v, kind)] if isinstance(value, (list, tuple)) else []
