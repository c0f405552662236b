"""torch.storage: the memory of tensors."""

from .exchange.storages import TypedStorage, UntypedStorage

__all__ = ["TypedStorage", "UntypedStorage"]
