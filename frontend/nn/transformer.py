"""Transformers; Vaswani et al., arXiv 1706.03762."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tilewright.ir.dtype import bool_
from tilewright.ir.location import at_user_line

from ..backends.mha import get_fastpath_enabled
from ..functions import creation
from ..functions.joining import triu
from ..recording import is_grad_enabled
from ..recording.epoch import clock
from . import functional as F
from . import init
from .activation import GELU, ReLU
from .container import ModuleList
from .dropout import Dropout
from .linear import Linear
from .module import Module
from .multihead import MultiheadAttention
from .normalization import LayerNorm

if TYPE_CHECKING:
    from tilewright.ir.dtype import DType

    from .._tensor import Tensor
    from ..types import DeviceLike

Activation = str | Callable[[Any], Any]


def _get_activation_fn(activation: Activation) -> Callable[[Any], Any]:
    if callable(activation):
        return activation
    if activation not in ("relu", "gelu"):
        raise RuntimeError(f"activation should be relu/gelu, not {activation}{at_user_line()}")
    return F.relu if activation == "relu" else F.gelu


class _Layer(Module):
    """The base of encoder and decoder layers: attention and a feed-forward network, each added to
    its input. The sum is normalized or, with norm_first, the input."""

    linear1: Linear
    linear2: Linear
    dropout: Dropout
    activation: Callable[[Any], Any]
    norm_first: bool

    def _add(self, x: Any, norm: Module, sublayer: Callable[[Any], Any]) -> Any:
        return x + sublayer(norm(x)) if self.norm_first else norm(x + sublayer(x))

    def _attend(
        self, attention: Module, dropout: Module, x: Any, memory: Any, mask: Any, padding: Any,
        is_causal: bool,
    ) -> Any:  # fmt: skip
        y, _ = attention(
            x, memory, memory, attn_mask=mask, key_padding_mask=padding, need_weights=False,
            is_causal=is_causal and mask is not None,
        )  # fmt: skip
        return dropout(y)

    def _feed_forward(self, dropout: Module, x: Any) -> Any:
        return dropout(self.linear2(self.dropout(self.activation(self.linear1(x)))))


class TransformerEncoderLayer(_Layer):
    """Self-attention and a feed-forward network over [time, batch, d_model], with batch_first
    [batch, time, d_model], or unbatched [time, d_model]."""

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = F.relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: DeviceLike | None = None,
        dtype: DType | None = None,
    ) -> None:
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        super().__init__()
        self.self_attn = MultiheadAttention(
            d_model, nhead, dropout=dropout, bias=bias, batch_first=batch_first, **where
        )
        self.linear1 = Linear(d_model, dim_feedforward, bias=bias, **where)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias=bias, **where)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **where)
        self.norm2 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **where)
        self.dropout1, self.dropout2 = Dropout(dropout), Dropout(dropout)
        self.activation = _get_activation_fn(activation)

    def _fields_of_torch(self) -> dict[str, Any]:
        known = {F.relu: 1, F.gelu: 2}
        return {"activation_relu_or_gelu": known.get(self.activation, 0)}

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """src_mask[time, time] and src_key_padding_mask[batch, time] are bool, True for what may
        not be seen, or numbers to add to the scores. is_causal: a hint that src_mask is causal."""

        def attend(x: Any) -> Any:
            return self._attend(
                self.self_attn, self.dropout1, x, x, src_mask, src_key_padding_mask, is_causal
            )

        x = self._add(src, self.norm1, attend)
        return self._add(x, self.norm2, lambda y: self._feed_forward(self.dropout2, y))


class TransformerDecoderLayer(_Layer):
    """Self-attention, attention to a memory, and a feed-forward network, over shapes as in
    TransformerEncoderLayer."""

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = F.relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: DeviceLike | None = None,
        dtype: DType | None = None,
    ) -> None:
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        super().__init__()
        for name in ("self_attn", "multihead_attn"):
            attention = MultiheadAttention(
                d_model, nhead, dropout=dropout, bias=bias, batch_first=batch_first, **where
            )
            setattr(self, name, attention)
        self.linear1 = Linear(d_model, dim_feedforward, bias=bias, **where)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias=bias, **where)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **where)
        self.norm2 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **where)
        self.norm3 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **where)
        self.dropout1, self.dropout2 = Dropout(dropout), Dropout(dropout)
        self.dropout3 = Dropout(dropout)
        self.activation = _get_activation_fn(activation)

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """The masks of the target and of the memory are as in TransformerEncoderLayer."""

        def attend(x: Any) -> Any:
            return self._attend(
                self.self_attn, self.dropout1, x, x, tgt_mask, tgt_key_padding_mask, tgt_is_causal
            )

        def look(x: Any) -> Any:
            return self._attend(
                self.multihead_attn, self.dropout2, x, memory, memory_mask,
                memory_key_padding_mask, memory_is_causal,
            )  # fmt: skip

        x = self._add(tgt, self.norm1, attend)
        x = self._add(x, self.norm2, look)
        return self._add(x, self.norm3, lambda y: self._feed_forward(self.dropout3, y))


def _copies(layer: Module, count: int) -> ModuleList:
    return ModuleList([copy.deepcopy(layer) for _ in range(count)])


class TransformerEncoder(Module):
    """`num_layers` copies of an encoder layer, one after another, and a last normalization.

    With enable_nested_tensor PyTorch's inference leaves out what follows the end of each sequence.
    Its results are 0 before the last norm, and here they are, too. mask_check: only where all
    sequences of src_key_padding_mask begin at the left.
    """

    def __init__(
        self,
        encoder_layer: Module,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        super().__init__()
        self.layers = _copies(encoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm
        self.enable_nested_tensor = enable_nested_tensor
        self.use_nested_tensor = enable_nested_tensor and _may_be_nested(encoder_layer)
        self.mask_check = mask_check

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        """is_causal: a hint that `mask` is causal. None doesn't look at the mask, which would have
        to be computed first."""
        absent = self._absent(src, mask, src_key_padding_mask)
        for layer in self.layers:
            src = layer(
                src,
                src_mask=mask,
                is_causal=bool(is_causal),
                src_key_padding_mask=src_key_padding_mask,
            )
        if absent is not None:
            src = src.masked_fill(absent.unsqueeze(-1), 0)
        return src if self.norm is None else self.norm(src)

    def _absent(self, src: Tensor, mask: Any, padding: Any) -> Tensor | None:
        """Where PyTorch computes nothing, [batch, time]; None if it computes all."""
        if not self.use_nested_tensor or padding is None or mask is not None or src.dim() != 3:
            return None
        first = self.layers[0]
        if first.training or clock.casts is not None or not get_fastpath_enabled():
            return None
        if is_grad_enabled() and any(t.requires_grad for t in (src, *first.parameters())):
            return None
        absent: Any = padding if padding.dtype is bool_ else padding != 0
        if self.mask_check:
            absent = absent & (absent[:, 1:] | ~absent[:, :-1]).all()
        return absent  # type: ignore[no-any-return]


def _may_be_nested(layer: Module) -> bool:
    """Whether PyTorch computes layers like this one with nested tensors."""
    if not isinstance(layer, TransformerEncoderLayer) or layer.norm_first:
        return False
    attention, activation = layer.self_attn, layer.activation
    return (
        attention.batch_first
        and attention._qkv_same_embed_dim
        and attention.in_proj_bias is not None
        and (activation in (F.relu, F.gelu) or isinstance(activation, (ReLU, GELU)))
        and layer.norm1.eps == layer.norm2.eps
        and attention.num_heads % 2 == 0
    )


class TransformerDecoder(Module):
    """`num_layers` copies of a decoder layer, one after another, and a last normalization."""

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        super().__init__()
        self.layers = _copies(decoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        for layer in self.layers:
            tgt = layer(
                tgt,
                memory,
                tgt_mask=tgt_mask,
                memory_mask=memory_mask,
                tgt_key_padding_mask=tgt_key_padding_mask,
                memory_key_padding_mask=memory_key_padding_mask,
                tgt_is_causal=bool(tgt_is_causal),
                memory_is_causal=memory_is_causal,
            )
        return tgt if self.norm is None else self.norm(tgt)


class Transformer(Module):
    """An encoder of a source, and a decoder of a target that looks at it.

    src[S, N, d_model], tgt[T, N, d_model]; with batch_first N comes first, and unbatched tensors
    have no N. All matrices are initialized by init.xavier_uniform_.
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = F.relu,
        custom_encoder: Module | None = None,
        custom_decoder: Module | None = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: DeviceLike | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        options = (
            d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first,
            norm_first, bias,
        )  # fmt: skip

        def norm() -> LayerNorm:
            return LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **where)

        self.encoder: Any = custom_encoder
        if custom_encoder is None:
            encoder = TransformerEncoderLayer(*options, **where)
            self.encoder = TransformerEncoder(encoder, num_encoder_layers, norm())
        self.decoder: Any = custom_decoder
        if custom_decoder is None:
            decoder = TransformerDecoderLayer(*options, **where)
            self.decoder = TransformerDecoder(decoder, num_decoder_layers, norm())
        for p in self.parameters():
            if p.dim() > 1:
                init.xavier_uniform_(p)
        self.d_model = d_model
        self.nhead = nhead
        self.batch_first = batch_first

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        batch = 0 if self.batch_first else 1
        if src.dim() == 3 and src.shape[batch] != tgt.shape[batch]:
            raise RuntimeError(f"the batch number of src and tgt must be equal{at_user_line()}")
        if src.shape[-1] != self.d_model or tgt.shape[-1] != self.d_model:
            raise RuntimeError(
                f"the feature number of src and tgt must be equal to d_model{at_user_line()}"
            )
        memory = self.encoder(
            src, mask=src_mask, src_key_padding_mask=src_key_padding_mask, is_causal=src_is_causal
        )
        return self.decoder(
            tgt,
            memory,
            tgt_mask=tgt_mask,
            memory_mask=memory_mask,
            tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask,
            tgt_is_causal=tgt_is_causal,
            memory_is_causal=memory_is_causal,
        )

    @staticmethod
    def generate_square_subsequent_mask(
        sz: int, device: DeviceLike | None = None, dtype: DType | None = None
    ) -> Tensor:
        """[sz, sz]: -inf above the diagonal, zero elsewhere."""
        return triu(creation.full((sz, sz), -math.inf, dtype=dtype, device=device), 1)
