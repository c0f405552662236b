"""Attention of several heads whose parts are observed, and then quantized."""

from __future__ import annotations

import importlib
import math
from typing import Any

from tilewright.ir.dtype import bool_, uint8

from .... import cat, nn, no_grad
from ....functions.creation import zeros
from ..quantized.functional_modules import FloatFunctional

__all__ = ["MultiheadAttention"]


class MultiheadAttention(nn.MultiheadAttention):
    """torch.nn.MultiheadAttention with a layer for each projection. Attention itself is computed
    with floats."""

    def __init__(
        self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True,
        add_bias_kv: bool = False, add_zero_attn: bool = False, kdim: int | None = None,
        vdim: int | None = None, batch_first: bool = False, device: Any = None, dtype: Any = None,
    ):  # fmt: skip
        stubs = importlib.import_module("...quantization.stubs", __package__)
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        super().__init__(
            embed_dim, num_heads, dropout, bias, add_bias_kv, add_zero_attn, kdim, vdim,
            batch_first, **where,
        )  # fmt: skip
        self.out_proj = nn.Linear(embed_dim, embed_dim, bias=bias, **where)  # type: ignore[assignment]
        self.linear_Q = nn.Linear(embed_dim, embed_dim, bias=bias, **where)
        self.linear_K = nn.Linear(self.kdim, embed_dim, bias=bias, **where)
        self.linear_V = nn.Linear(self.vdim, embed_dim, bias=bias, **where)
        self.q_scaling_product = FloatFunctional()
        self.quant_attn_output, self.quant_attn_output_weights = (
            stubs.QuantStub(),
            stubs.QuantStub(),
        )
        self.dequant_q, self.dequant_k = stubs.DeQuantStub(), stubs.DeQuantStub()
        self.dequant_v = stubs.DeQuantStub()

    def forward(
        self, query: Any, key: Any, value: Any, key_padding_mask: Any = None,
        need_weights: bool = True, attn_mask: Any = None, average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> Any:  # fmt: skip
        if is_causal:
            raise AssertionError("causal mask not supported by AO MHA module")
        if self.batch_first:
            query, key, value = (x.transpose(0, 1) for x in (query, key, value))
        length, batch, _ = query.shape
        q = self.q_scaling_product.mul_scalar(self.linear_Q(query), 1 / math.sqrt(self.head_dim))
        k, v = self.linear_K(key), self.linear_V(value)
        sources = k.shape[0]
        if self.bias_k is not None:
            k, v = (
                cat([x, b.repeat(1, batch, 1)]) for x, b in ((k, self.bias_k), (v, self.bias_v))
            )
        heads = batch * self.num_heads
        q, k, v = (
            x.reshape(x.shape[0], heads, self.head_dim).transpose(0, 1)
            for x in (self.dequant_q(q), self.dequant_k(k), self.dequant_v(v))
        )
        if self.add_zero_attn:
            k, v = (cat([x, zeros(heads, 1, self.head_dim, dtype=x.dtype)], 1) for x in (k, v))
        scores = q @ k.transpose(1, 2)
        more = k.shape[1] - sources  # they are never masked
        if attn_mask is not None:
            scores = self._masked(scores, self._mask(attn_mask, length, sources, heads), more)
        if key_padding_mask is not None:
            hidden = nn.functional.pad(_truth(key_padding_mask), (0, more))
            scores = scores.view(batch, self.num_heads, length, -1)
            scores = scores.masked_fill(hidden[:, None, None], -math.inf).view(heads, length, -1)
        weights = nn.functional.dropout(scores.softmax(-1), self.dropout, self.training)
        result = (weights @ v).transpose(0, 1).reshape(length, batch, self.embed_dim)
        if self.batch_first:
            result = result.transpose(0, 1)
        result = self.out_proj(self.quant_attn_output(result))
        weights = self.quant_attn_output_weights(weights)
        if not need_weights:
            return result, None
        weights = weights.reshape(batch, self.num_heads, length, -1)
        return result, weights.mean(1) if average_attn_weights else weights

    @staticmethod
    def _mask(mask: Any, length: int, sources: int, heads: int) -> Any:
        """A mask[1 or heads, length, sources] of truth values or of floats to add."""
        wanted = {2: (length, sources), 3: (heads, length, sources)}.get(mask.dim())
        if wanted is None:
            raise RuntimeError(f"attn_mask's dimension {mask.dim()} is not supported")
        if tuple(mask.shape) != wanted:
            raise RuntimeError(f"The size of the {mask.dim()}D attn_mask is not correct.")
        mask = _truth(mask) if mask.dtype is uint8 else mask
        return mask if mask.dim() == 3 else mask[None]

    @staticmethod
    def _masked(scores: Any, mask: Any, more: int) -> Any:
        mask = nn.functional.pad(mask, (0, more))
        return scores.masked_fill(mask, -math.inf) if mask.dtype is bool_ else scores + mask

    def _get_name(self) -> str:
        return "QuantizableMultiheadAttention"

    def _projections(self, of: Any) -> list[tuple[Any, Any, Any]]:
        """(projection, its weight and bias in the layer of floats) for query, key and value."""
        layers = (self.linear_Q, self.linear_K, self.linear_V)
        if of._qkv_same_embed_dim:
            weights = of.in_proj_weight.chunk(3)
        else:
            weights = (of.q_proj_weight, of.k_proj_weight, of.v_proj_weight)
        biases = (None,) * 3 if of.in_proj_bias is None else of.in_proj_bias.chunk(3)
        return list(zip(layers, weights, biases, strict=True))

    @classmethod
    def from_float(cls, other: Any) -> Any:
        """The observed layer for a layer of floats that has a qconfig."""
        if type(other) is not nn.MultiheadAttention:
            raise AssertionError(f"Expected type {nn.MultiheadAttention}, got {type(other)}")
        if not hasattr(other, "qconfig"):
            raise AssertionError("The float module must have 'qconfig'")
        made = cls(
            other.embed_dim, other.num_heads, other.dropout, other.in_proj_bias is not None,
            other.bias_k is not None, other.add_zero_attn, other.kdim, other.vdim,
            other.batch_first,
        )  # fmt: skip
        for name in ("bias_k", "bias_v", "in_proj_weight", "in_proj_bias"):
            setattr(made, name, getattr(other, name))
        for name in ("q_proj_weight", "k_proj_weight", "v_proj_weight"):
            setattr(made, name, getattr(other, name))
        made.qconfig = other.qconfig
        made.out_proj.weight, made.out_proj.bias = other.out_proj.weight, other.out_proj.bias
        for layer, weight, bias in made._projections(other):
            layer.weight = nn.Parameter(weight.detach().clone(), weight.requires_grad)
            if bias is not None:
                layer.bias = nn.Parameter(bias.detach().clone(), bias.requires_grad)
        static = importlib.import_module("...quantization.static", __package__)
        ready = static.prepare_qat if other.training else static.prepare
        return ready(made.train(other.training), inplace=True)

    @classmethod
    def from_observed(cls, other: Any) -> Any:
        raise NotImplementedError(
            "It looks like you are trying to prepare an MHA module. Please, see the examples on "
            "quantizable MHAs."
        )

    @no_grad()
    def dequantize(self) -> nn.MultiheadAttention:
        """The layer of floats that has the rounded weights."""
        made = nn.MultiheadAttention(
            self.embed_dim, self.num_heads, self.dropout, self._floats("linear_Q")[1] is not None,
            self.bias_k is not None, self.add_zero_attn, self.kdim, self.vdim, self.batch_first,
        )  # fmt: skip
        if made._qkv_same_embed_dim != self._qkv_same_embed_dim:
            raise AssertionError("The float module must have the same sizes of key and value")
        for name in ("bias_k", "bias_v"):
            if (value := getattr(self, name)) is not None:
                getattr(made, name).copy_(value.dequantize())
        parts = [self._floats(name) for name in ("linear_Q", "linear_K", "linear_V")]
        for (_, weight, bias), (found, of) in zip(self._projections(made), parts, strict=True):
            weight.copy_(found)
            if bias is not None:
                bias.copy_(of)
        weight, bias = self._floats("out_proj")
        made.out_proj.weight.copy_(weight)
        if bias is not None:
            made.out_proj.bias.copy_(bias)
        return made.train(self.training)

    def _floats(self, name: str) -> tuple[Any, Any]:
        """The weight and the bias of a layer, which may be quantized."""
        layer = self._modules[name]
        read = (getattr(layer, each) for each in ("weight", "bias"))
        weight, bias = (each() if callable(each) else each for each in read)
        return weight.dequantize(), bias


def _truth(mask: Any) -> Any:
    return mask if mask.dtype is bool_ else mask.bool()
