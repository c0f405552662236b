"""torch.layout and torch.memory_format: how elements lie. All tensors are strided here."""

from __future__ import annotations


class _Named(str):
    """A name that is shown as it is written."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)

    def __reduce__(self) -> str:
        return self.rpartition(".")[2]


class layout(_Named):
    """The kind of a tensor's storage."""


class memory_format(_Named):
    """The order of a dense tensor's axes in memory."""


strided = layout("torch.strided")
sparse_coo = layout("torch.sparse_coo")
sparse_csr = layout("torch.sparse_csr")
sparse_csc = layout("torch.sparse_csc")
sparse_bsr = layout("torch.sparse_bsr")
sparse_bsc = layout("torch.sparse_bsc")
jagged = layout("torch.jagged")
contiguous_format = memory_format("torch.contiguous_format")
preserve_format = memory_format("torch.preserve_format")
channels_last = memory_format("torch.channels_last")
channels_last_3d = memory_format("torch.channels_last_3d")
legacy_contiguous_format = contiguous_format
