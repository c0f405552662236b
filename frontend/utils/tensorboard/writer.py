"""torch.utils.tensorboard.writer: the writers by PyTorch's path."""

from . import FileWriter, SummaryWriter

__all__ = ["FileWriter", "SummaryWriter"]
