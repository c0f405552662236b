"""Embeddings with weights of 8 or 4 bits: a scale and an offset for each row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilewright.ir.location import at_user_line

from .... import nn
from ....functions.creation import ones, zeros
from ....functions.quantized import (
    QuantizedDType,
    QuantizedTensor,
    per_channel_affine_float_qparams,
    quantize_per_channel,
    quint4x2,
    quint8,
)
from ....nn import functional as F
from ...quantization.qconfig import float_qparams_weight_only_qconfig

if TYPE_CHECKING:
    from ...._tensor import Tensor


_DTYPE, _WEIGHT = "_packed_params.dtype", "_packed_params._packed_weight"
"""The entries in state dicts, which are PyTorch's."""


def _rows(weight: Any) -> tuple[Any, Any]:
    """The scale and the number that stands for 0 of each row, in float32."""
    return weight._scale.float(), weight._zero_point.float()


class Embedding(nn.Module):
    """Rows of a weight [num_embeddings, embedding_dim] at indices, as floats.

    The weight is of quint8 or quint4x2, and row r stands for (codes - zero_points[r]) * scales[r].
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: QuantizedTensor | None = None,
        dtype: QuantizedDType = quint8,
    ):
        super().__init__()
        if dtype not in (quint8, quint4x2):
            raise NotImplementedError(
                f"{self._get_name()}: expected dtype torch.quint8 or torch.quint4x2, got {dtype}"
                f"{at_user_line()}"
            )
        self.num_embeddings, self.embedding_dim, self.dtype = num_embeddings, embedding_dim, dtype
        codes = zeros(num_embeddings, embedding_dim, dtype=dtype.stored)
        self._weight = QuantizedTensor(codes, ones(num_embeddings), zeros(num_embeddings), dtype, 0)
        if _weight is not None:
            self.set_weight(_weight)

    def set_weight(self, w: QuantizedTensor) -> None:
        """Take a quantized weight."""
        if tuple(w.shape) != (self.num_embeddings, self.embedding_dim):
            raise AssertionError("Shape of weight does not match num_embeddings and embedding_dim")
        self._weight = w

    def weight(self) -> QuantizedTensor:
        return self._weight

    def forward(self, indices: Tensor) -> Tensor:
        weight: Any = self._weight  # only the rows that are named become floats
        codes = F.embedding(indices, weight._codes).float()
        scale, zero = (F.embedding(indices, each[:, None]) for each in _rows(weight))
        return (codes - zero) * scale

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + _DTYPE] = self.dtype
        destination[prefix + _WEIGHT] = self._weight
        metadata = getattr(destination, "_metadata", None)
        if metadata is not None:  # PyTorch's layer has a module with the parts
            metadata[prefix + "_packed_params"] = {"version": 1}

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        self.dtype = state_dict.pop(prefix + _DTYPE)
        self.set_weight(state_dict.pop(prefix + _WEIGHT))
        super()._load_from_state_dict(state_dict, prefix, *rest)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The table for one of floats, whose qconfig is `float_qparams_weight_only_qconfig`, or
        that of 4 bits."""
        observer = getattr(mod, "weight_fake_quant", None)
        if observer is None:
            config = getattr(mod, "qconfig", None) or float_qparams_weight_only_qconfig
            observer = config.weight()
        if getattr(observer, "qscheme", None) is not per_channel_affine_float_qparams:
            raise AssertionError(
                "Embedding quantization is only supported with float_qparams_weight_only_qconfig."
            )
        weight = mod.weight.detach().float()
        observer(weight)
        scale, zero = observer.calculate_qparams()
        rounded = quantize_per_channel(weight, scale, zero, 0, observer.dtype)
        sizes = mod.num_embeddings, mod.embedding_dim
        return cls(*sizes, _weight=rounded, dtype=observer.dtype, **cls._options(mod))

    @classmethod
    def _options(cls, mod: Any) -> dict[str, Any]:
        """The options of a table of floats that this one has."""
        return {}

    def _get_name(self) -> str:
        return "QuantizedEmbedding"

    def extra_repr(self) -> str:
        return (
            f"num_embeddings={self.num_embeddings}, embedding_dim={self.embedding_dim}, "
            f"dtype={self.dtype}, qscheme={self._weight.qscheme()}"
        )


class EmbeddingBag(Embedding):
    """Sums of rows of such a weight over bags of indices."""

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "sum",
        sparse: bool = False,
        _weight: QuantizedTensor | None = None,
        include_last_offset: bool = False,
        dtype: QuantizedDType = quint8,
    ):
        super().__init__(num_embeddings, embedding_dim, _weight=_weight, dtype=dtype)
        self.mode, self.include_last_offset = mode, include_last_offset

    def forward(
        self,
        indices: Tensor,
        offsets: Tensor | None = None,
        per_sample_weights: Tensor | None = None,
        compressed_indices_mapping: Any = None,
    ) -> Tensor:
        return F.embedding_bag(
            indices,
            self._floats(),
            offsets,
            mode="sum",
            per_sample_weights=per_sample_weights,
            include_last_offset=self.include_last_offset,
        )

    def _floats(self) -> Tensor:
        """The weight as floats: of 4 bits with scales and offsets of 16, as PyTorch packs them."""
        weight: Any = self._weight
        if self.dtype is quint8:
            return weight.dequantize()  # type: ignore[no-any-return]
        scale, zero = (each[:, None] for each in _rows(weight))
        offset = (-scale * zero).half().float()
        return weight._codes.float() * scale.half().float() + offset

    @classmethod
    def _options(cls, mod: Any) -> dict[str, Any]:
        return {"mode": mod.mode, "include_last_offset": mod.include_last_offset}

    def _get_name(self) -> str:
        return "QuantizedEmbeddingBag"
