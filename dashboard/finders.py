"""Static files from installed packages: the repository keeps no copy of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from django.contrib.staticfiles.finders import BaseFinder
from django.contrib.staticfiles.utils import matches_patterns
from django.core.checks import CheckMessage, Error
from django.core.files.storage import FileSystemStorage

#: Static name -> (package, path inside it). The packages are pinned, so the names carry no version.
ASSETS = {
    "vendor/htmx.min.js": ("django_htmx", "static/django_htmx/htmx-2.min.js"),
    "vendor/plotly.min.js": ("plotly", "package_data/plotly.min.js"),
}


class PackageFileStorage(FileSystemStorage):
    """Read-only storage in which each name of ``ASSETS`` is a file of some package."""

    prefix = ""

    def path(self, name: str) -> str:
        return str(locate(name))


class PackageAssetFinder(BaseFinder):
    """Finds the files of ``ASSETS`` in their packages, without importing these."""

    storage = PackageFileStorage()

    def check(self, **kwargs: Any) -> list[CheckMessage]:
        return [
            Error(
                f"static file {name} is missing from package {package}",
                hint="install the pinned requirements again, or correct dashboard.finders.ASSETS",
                id="dashboard.E001",
            )
            for name, (package, _) in ASSETS.items()
            if not _exists(name)
        ]

    def find(self, path: str, find_all: bool = False, **kwargs: Any) -> Any:
        """Return where the file is, or an empty list; a list of it when ``find_all``."""
        if path not in ASSETS or not _exists(path):
            return []
        found = str(locate(path))
        return [found] if find_all else found

    def list(
        self, ignore_patterns: Iterable[str] | None
    ) -> Iterator[tuple[str, FileSystemStorage]]:
        for name in ASSETS:
            if not matches_patterns(name, list(ignore_patterns or ())) and _exists(name):
                yield name, self.storage


def locate(name: str) -> Path:
    """Return the path of an asset. Raises FileNotFoundError for a name or package not known."""
    package, inside = ASSETS.get(name, ("", ""))
    spec = find_spec(package) if package else None
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError(f"no package holds static file {name!r}")
    return Path(spec.submodule_search_locations[0]) / inside


def _exists(name: str) -> bool:
    try:
        return locate(name).is_file()
    except FileNotFoundError:
        return False
