"""torch.hub: files from the network in a folder of the user, and models that repositories name."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import sys
import tempfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from tilewright.ir.location import at_user_line

from .serialization import load as _load_file

__all__ = [
    "download_url_to_file",
    "get_dir",
    "help",
    "list",
    "load",
    "load_state_dict_from_url",
    "set_dir",
]

HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")
READ_DATA_CHUNK = 128 * 1024
_folder: str | None = None


def _get_torch_home() -> str:
    """The folder of PyTorch's caches: TORCH_HOME, or `torch` in the user's caches."""
    caches = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    return os.path.expanduser(os.environ.get("TORCH_HOME", os.path.join(caches, "torch")))


def get_dir() -> str:
    """The folder of what was downloaded."""
    return os.path.join(_get_torch_home(), "hub") if _folder is None else _folder


def set_dir(d: str | os.PathLike[str]) -> None:
    global _folder
    _folder = os.path.expanduser(os.fspath(d))


def download_url_to_file(
    url: str, dst: str, hash_prefix: str | None = None, progress: bool = True
) -> None:
    """Write what a URL gives to a file. hash_prefix: how its SHA-256 must begin."""
    from tqdm import tqdm

    dst = os.path.expanduser(dst)
    request = urllib.request.Request(url, headers={"User-Agent": "torch.hub"})
    digest = hashlib.sha256()
    part = f"{dst}.{os.getpid()}.partial"
    try:
        with urllib.request.urlopen(request) as source, open(part, "wb") as file:
            size = source.headers.get("Content-Length")
            total = int(size) if size else None
            with tqdm(total=total, disable=not progress, unit="B", unit_scale=True) as bar:
                while chunk := source.read(READ_DATA_CHUNK):
                    file.write(chunk)
                    digest.update(chunk)
                    bar.update(len(chunk))
        if hash_prefix and not digest.hexdigest().startswith(hash_prefix):
            raise RuntimeError(
                f'invalid hash value (expected "{hash_prefix}", got "{digest.hexdigest()}")'
            )
        os.replace(part, dst)
    finally:
        Path(part).unlink(missing_ok=True)


def load_state_dict_from_url(
    url: str,
    model_dir: str | None = None,
    map_location: Any = None,
    progress: bool = True,
    check_hash: bool = False,
    file_name: str | None = None,
    weights_only: bool = False,
) -> dict[str, Any]:
    """The object in a saved file, which is downloaded unless it is in `model_dir` already."""
    folder = model_dir or os.path.join(get_dir(), "checkpoints")
    os.makedirs(folder, exist_ok=True)
    name = file_name or os.path.basename(urlparse(url).path)
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        sys.stderr.write(f'Downloading: "{url}" to {path}\n')
        found = HASH_REGEX.search(name) if check_hash else None
        download_url_to_file(url, path, found.group(1) if found else None, progress)
    loaded: dict[str, Any] = _load_file(path, map_location=map_location, weights_only=weights_only)
    return loaded


def _repository(repo: str, source: str, force_reload: bool) -> Path:
    """The folder of a repository: a local one, or one of GitHub's, `owner/name[:branch]`."""
    if source == "local":
        return Path(repo).expanduser()
    if source != "github":
        raise ValueError(f'Unknown source: "{source}". Allowed values: "github" | "local".')
    name, _, branch = repo.partition(":")
    branch = branch or "main"
    folder = Path(get_dir()) / f"{name}_{branch}".replace("/", "_")
    if folder.exists() and not force_reload:
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as there:
        archive = os.path.join(there, "repository.zip")
        try:
            download_url_to_file(
                f"https://github.com/{name}/zipball/{branch}", archive, progress=False
            )
        except urllib.error.HTTPError:
            raise
        except urllib.error.URLError as error:
            raise RuntimeError(
                "It looks like there is no internet connection and the repo could not be found in "
                f"the cache ({get_dir()}): {error.reason}{at_user_line()}"
            ) from error
        with zipfile.ZipFile(archive) as packed:
            packed.extractall(there)
            top = packed.namelist()[0].partition("/")[0]
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(os.path.join(there, top), folder)
    return folder


def _hubconf(folder: Path) -> Any:
    """The module hubconf.py of a repository, imported with the repository's folder on the path."""
    sys.path.insert(0, str(folder))
    try:
        spec = importlib.util.spec_from_file_location("hubconf", folder / "hubconf.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(folder))
    missing = [n for n in getattr(module, "dependencies", ()) if not importlib.util.find_spec(n)]
    if missing:
        raise RuntimeError(f"Missing dependencies: {', '.join(missing)}")
    return module


def _entry(module: Any, model: str) -> Callable[..., Any]:
    found = getattr(module, model, None)
    if not callable(found):
        raise RuntimeError(f"Cannot find callable {model} in hubconf")
    entry: Callable[..., Any] = found
    return entry


def load(
    repo_or_dir: str,
    model: str,
    *args: Any,
    source: str = "github",
    trust_repo: Any = None,
    force_reload: bool = False,
    verbose: bool = True,
    skip_validation: bool = False,
    **kwargs: Any,
) -> Any:
    """Call the function `model` of a repository's hubconf.py. It runs that repository's code."""
    module = _hubconf(_repository(repo_or_dir, source, force_reload))
    return _entry(module, model)(*args, **kwargs)


def help(
    github: str, model: str, force_reload: bool = False, source: str = "github", **options: Any
) -> str | None:
    """The docstring of a repository's function."""
    return _entry(_hubconf(_repository(github, source, force_reload)), model).__doc__


def list(
    github: str, force_reload: bool = False, source: str = "github", **options: Any
) -> Sequence[str]:
    """The functions of a repository's hubconf.py."""
    found = vars(_hubconf(_repository(github, source, force_reload)))
    return [name for name, each in found.items() if callable(each) and not name.startswith("_")]
