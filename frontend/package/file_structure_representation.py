"""The files of an archive as a tree."""

from __future__ import annotations

from .glob_group import GlobGroup, GlobPattern

__all__ = ["Directory"]


class Directory:
    """A folder or a file of an archive. children: what it holds, by name."""

    def __init__(self, name: str, is_dir: bool):
        self.name, self.is_dir = name, is_dir
        self.children: dict[str, Directory] = {}

    def _add_file(self, file_path: str) -> None:
        *folders, name = file_path.split("/")
        place = self
        for each in folders:
            place = place.children.setdefault(each, Directory(each, True))
        place.children[name] = Directory(name, False)

    def has_file(self, filename: str) -> bool:
        """Whether there is a file at a path, whose parts are divided by `/`."""
        place = self
        for each in filename.split("/"):
            if each not in place.children:
                return False
            place = place.children[each]
        return True

    def __str__(self) -> str:
        return "\n".join(self._lines("", "─── ")) + "\n"

    def _lines(self, before: str, mark: str) -> list[str]:
        lines = [before + mark + self.name]
        below = before + ("│   " if mark == "├── " else "    ")
        ordered = sorted(self.children.values(), key=lambda c: (not c.is_dir, c.name))
        for i, child in enumerate(ordered):
            lines += child._lines(below, "└── " if i + 1 == len(ordered) else "├── ")
        return lines


def tree_of(
    name: str, files: list[str], include: GlobPattern = "**", exclude: GlobPattern = ()
) -> Directory:
    """The tree of the files whose paths fit the patterns."""
    chosen = GlobGroup(include, exclude=exclude, separator="/")
    top = Directory(name, True)
    for each in files:
        if chosen.matches(each):
            top._add_file(each)
    return top
