"""DistributedSampler: each of several processes reads its own part of a dataset."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sized

from tilewright.ir.location import at_user_line

from ...functions import sampling
from .sampler import Sampler

__all__ = ["DistributedSampler"]


class DistributedSampler(Sampler[int]):
    """Every num_replicas-th index from `rank` on, in an order that all replicas share.

    num_replicas, rank: the number of processes, and the number of this one; by default those of
    torch.distributed. shuffle: in another random order in each epoch
    (`set_epoch`), by `seed`. All replicas get equally many indices; drop_last: leave the rest out
    instead of repeating the first indices.
    """

    def __init__(
        self,
        dataset: Sized,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        if num_replicas is None or rank is None:
            from ...distributed import world

            num_replicas = world.get_world_size() if num_replicas is None else num_replicas
            rank = world.get_rank() if rank is None else rank
        if not 0 <= rank < num_replicas:
            raise ValueError(
                f"Invalid rank {rank}, rank should be in the interval [0, {num_replicas - 1}]"
                f"{at_user_line()}"
            )
        self.dataset, self.num_replicas, self.rank = dataset, num_replicas, rank
        self.shuffle, self.seed, self.drop_last = shuffle, seed, drop_last
        self.epoch = 0
        size = len(dataset)
        if drop_last and size % num_replicas:
            self.num_samples = math.ceil((size - num_replicas) / num_replicas)
        else:
            self.num_samples = math.ceil(size / num_replicas)
        self.total_size = self.num_samples * num_replicas

    def __iter__(self) -> Iterator[int]:
        count = len(self.dataset)
        if self.shuffle:
            generator = sampling.Generator()
            generator.manual_seed(self.seed + self.epoch)
            indices = sampling.randperm(count, generator=generator).tolist()
        else:
            indices = list(range(count))
        if not self.drop_last and indices:
            indices *= math.ceil(self.total_size / count)
        return iter(indices[self.rank : self.total_size : self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Shuffle by another seed from the next iteration on."""
        self.epoch = epoch
