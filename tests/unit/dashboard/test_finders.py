"""Static files out of installed packages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from django.contrib.staticfiles import finders
from django.contrib.staticfiles.storage import ManifestStaticFilesStorage
from django.core.management import call_command
from django.test import override_settings

from dashboard.finders import ASSETS, PackageAssetFinder, locate


@pytest.mark.parametrize("name", ASSETS)
def test_each_asset_is_found_in_its_package(name: str) -> None:
    found = finders.find(name)
    assert isinstance(found, str)
    assert Path(found).stat().st_size > 10_000


def test_what_is_not_an_asset_is_not_found() -> None:
    finder = PackageAssetFinder()
    assert finder.find("vendor/../../../etc/passwd") == []
    assert finder.find("vendor/other.js") == []
    assert finder.find("vendor/other.js", find_all=True) == []
    with pytest.raises(FileNotFoundError):
        locate("vendor/other.js")


def test_patterns_to_ignore_are_ignored() -> None:
    listed = [name for name, _ in PackageAssetFinder().list(["*plotly*"])]
    assert listed == ["vendor/htmx.min.js"]


def test_a_missing_package_is_a_system_check_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ASSETS, "vendor/gone.js", ("no_such_package", "gone.js"))
    errors = PackageAssetFinder().check()
    assert [error.id for error in errors] == ["dashboard.E001"]
    assert PackageAssetFinder().find("vendor/gone.js") == []


def test_plotly_is_not_imported_for_its_file() -> None:
    code = (
        "import django; from django.conf import settings; settings.configure();"
        "import sys; from dashboard.finders import locate; locate('vendor/plotly.min.js');"
        "sys.exit('plotly' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_assets_are_collected_under_hashed_names(tmp_path: Path) -> None:
    storage = f"{ManifestStaticFilesStorage.__module__}.{ManifestStaticFilesStorage.__qualname__}"
    with override_settings(
        STATIC_ROOT=tmp_path,
        STATICFILES_DIRS=[],
        INSTALLED_APPS=["django.contrib.staticfiles"],
        STATICFILES_FINDERS=["dashboard.finders.PackageAssetFinder"],
        STORAGES={"staticfiles": {"BACKEND": storage}},
    ):
        call_command("collectstatic", "--noinput", verbosity=0)
    collected = {path.name for path in (tmp_path / "vendor").iterdir()}
    assert "plotly.min.js" in collected
    assert any(name.startswith("htmx.min.") and name != "htmx.min.js" for name in collected)
