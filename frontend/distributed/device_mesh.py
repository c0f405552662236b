"""torch.distributed.device_mesh: processes in a grid, with a group for each line of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.ir.location import at_user_line

from ..functions.from_data import tensor
from .groups import ProcessGroup
from .world import GroupMember, _world, get_rank, init_process_group, is_initialized, new_group

__all__ = ["DeviceMesh", "init_device_mesh"]


class DeviceMesh:
    """The processes of a run, or some of them, in a grid of any number of dimensions.

    All processes make the same mesh. Those along one dimension that differ in nothing else are a
    group (`get_group`), for the functions of torch.distributed and DistributedDataParallel.

    device_type: where the processes compute. mesh: their ranks in the world, as a tensor or nested
    lists. mesh_dim_names: names of the dimensions; `mesh["name"]` is the line of this process.
    """

    def __init__(
        self,
        device_type: str,
        mesh: Any = None,
        *,
        mesh_dim_names: Sequence[str] | None = None,
        backend_override: Any = None,
        _init_backend: bool = True,
        _groups: list[Any] | None = None,
    ):
        if _init_backend and not is_initialized():
            init_process_group()
        ranks = np.asarray(mesh.tolist() if hasattr(mesh, "tolist") else mesh, dtype=np.int64)
        self.device_type, self._ranks = device_type, ranks
        self.mesh_dim_names = tuple(mesh_dim_names) if mesh_dim_names is not None else None
        if self.mesh_dim_names is not None and len(self.mesh_dim_names) != ranks.ndim:
            raise RuntimeError(
                f"mesh_dim_names {self.mesh_dim_names} must have as many names as the mesh of "
                f"shape {ranks.shape} has dimensions{at_user_line()}"
            )
        if len(np.unique(ranks)) != ranks.size or (_init_backend and ranks.size > _world().size()):
            raise RuntimeError(
                f"Mesh should not be bigger than default world size {_world().size()}, with each "
                f"rank once, but found {ranks.size} ranks{at_user_line()}"
            )
        self._groups = _groups
        if _groups is None and _init_backend:
            self._groups = [self._group_along(dim) for dim in range(ranks.ndim)]

    def _group_along(self, dim: int) -> Any:
        """This process's group along a dimension. All processes make all groups, in one order."""
        if self._ranks.size == _world().size() == self._ranks.shape[dim]:
            return GroupMember.WORLD
        own: Any = GroupMember.NON_GROUP_MEMBER
        for line in np.moveaxis(self._ranks, dim, -1).reshape(-1, self._ranks.shape[dim]):
            made = new_group(line.tolist(), sort_ranks=False)
            own = made if isinstance(made, ProcessGroup) else own
        return own

    @property
    def mesh(self) -> Any:
        return tensor(self._ranks.astype(np.int32))

    @property
    def shape(self) -> tuple[int, ...]:
        return self._ranks.shape

    @property
    def ndim(self) -> int:
        return self._ranks.ndim

    def size(self, mesh_dim: int | None = None) -> int:
        return self._ranks.size if mesh_dim is None else self._ranks.shape[mesh_dim]

    def __repr__(self) -> str:
        names = self.mesh_dim_names
        sizes = (
            tuple(self.shape)
            if names is None
            else "({})".format(", ".join(f"{n}={s}" for n, s in zip(names, self.shape)))
        )
        strides = tuple(s // self._ranks.itemsize for s in self._ranks.strides)
        return f"DeviceMesh({sizes}, {self.device_type!r}, stride={strides})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeviceMesh) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def _identity(self) -> tuple[Any, ...]:
        return self.device_type, self.shape, self.mesh_dim_names, self._ranks.tobytes()

    # ---- parts ----------------------------------------------------------------------------------

    def __getitem__(self, mesh_dim_names: str | tuple[str, ...]) -> DeviceMesh:
        """The part of the mesh along the named dimensions that this process is in."""
        wanted = (mesh_dim_names,) if isinstance(mesh_dim_names, str) else tuple(mesh_dim_names)
        if not self.mesh_dim_names:
            raise RuntimeError(f"Cannot slice a DeviceMesh without mesh_dim_names!{at_user_line()}")
        if wanted == self.mesh_dim_names:
            return self
        unknown = [name for name in wanted if name not in self.mesh_dim_names]
        if unknown:
            raise KeyError(
                f"Invalid mesh_dim_names {wanted} specified. Valid mesh_dim_names are "
                f"{list(self.mesh_dim_names)}.{at_user_line()}"
            )
        dims = [self.mesh_dim_names.index(name) for name in wanted]
        if dims != sorted(dims):
            raise KeyError(
                f"Invalid mesh_dim_names {wanted} specified: they have the order "
                f"{list(self.mesh_dim_names)}{at_user_line()}"
            )
        where = self.get_coordinate()
        place: list[Any] = [0] * self.ndim if where is None else list(where)
        for dim in dims:
            place[dim] = slice(None)
        groups = None if self._groups is None else [self._groups[dim] for dim in dims]
        return DeviceMesh(
            self.device_type,
            self._ranks[tuple(place)],
            mesh_dim_names=wanted,
            _init_backend=False,
            _groups=groups,
        )

    def _dim(self, mesh_dim: int | str | None) -> int:
        if mesh_dim is None:
            if self.ndim > 1:
                raise RuntimeError(
                    f"Found the DeviceMesh have {self.ndim} dimensions. Optional kwarg `mesh_dim` "
                    "needs to be specified when device_mesh.ndim > 1. If you want to get the list "
                    "of all the ProcessGroups in the DeviceMesh, please use `get_all_groups()` "
                    f"instead.{at_user_line()}"
                )
            return 0
        if isinstance(mesh_dim, str):
            if mesh_dim not in (self.mesh_dim_names or ()):
                raise KeyError(f"Mesh dimension {mesh_dim!r} does not exist.{at_user_line()}")
            return (self.mesh_dim_names or ()).index(mesh_dim)
        return mesh_dim

    def get_group(self, mesh_dim: int | str | None = None) -> Any:
        """The processes along a dimension that this one is among."""
        if self._groups is None:
            raise RuntimeError(f"DeviceMesh process groups not initialized!{at_user_line()}")
        return self._groups[self._dim(mesh_dim)]

    def get_all_groups(self) -> list[Any]:
        return [self.get_group(dim) for dim in range(self.ndim)]

    @staticmethod
    def from_group(
        group: Any,
        device_type: str,
        mesh: Any = None,
        *,
        mesh_dim_names: tuple[str, ...] | None = None,
    ) -> DeviceMesh:
        """The mesh of a group, or of groups, one for each dimension of `mesh`."""
        groups = [group] if isinstance(group, ProcessGroup) else list(group)
        if mesh is None:
            if len(groups) > 1:
                raise ValueError(
                    f"Must pass mesh if passing multiple ProcessGroups{at_user_line()}"
                )
            mesh = groups[0]._ranks
        return DeviceMesh(
            device_type, mesh, mesh_dim_names=mesh_dim_names, _init_backend=False, _groups=groups
        )

    # ---- this process ---------------------------------------------------------------------------

    def get_rank(self) -> int:
        """The rank of this process in the world."""
        return get_rank()

    def get_local_rank(self, mesh_dim: int | str | None = None) -> int:
        """The rank of this process in its group along a dimension."""
        return get_rank(self.get_group(mesh_dim))

    def get_coordinate(self) -> tuple[int, ...] | None:
        """Where this process is in the mesh; None if it isn't in it."""
        places = np.argwhere(self._ranks == get_rank())
        return tuple(int(i) for i in places[0]) if len(places) else None


def init_device_mesh(
    device_type: str,
    mesh_shape: Sequence[int],
    *,
    mesh_dim_names: Sequence[str] | None = None,
    backend_override: Any = None,
) -> DeviceMesh:
    """All processes of a run, by their ranks, in a grid of this shape."""
    if mesh_dim_names is not None:
        if len(set(mesh_dim_names)) != len(mesh_dim_names):
            raise RuntimeError(
                "Each mesh_dim_name must be unique. Found repeated mesh_dim_name in mesh_dim_names "
                f"{tuple(mesh_dim_names)}{at_user_line()}"
            )
        if len(mesh_shape) != len(mesh_dim_names):
            raise RuntimeError(
                "mesh_shape and mesh_dim_names should have same length! Found len(mesh_dim_names): "
                f"{len(mesh_dim_names)} and len(mesh_shape):{len(mesh_shape)}.{at_user_line()}"
            )
    if not device_type.isalpha():
        raise RuntimeError(
            f"Device type with index is not supported but got {device_type}. Use only the device "
            f"type, as in 'cuda'.{at_user_line()}"
        )
    ranks = np.arange(int(np.prod(mesh_shape))).reshape(tuple(mesh_shape))
    return DeviceMesh(device_type, ranks, mesh_dim_names=mesh_dim_names)
