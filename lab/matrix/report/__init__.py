"""Reports of a matrix: for people in HTML, for pull requests in Markdown, for CI in JUnit XML."""

from __future__ import annotations

from pathlib import Path

from lab.matrix.report.html import html
from lab.matrix.report.junit import junit_xml
from lab.matrix.report.markdown import markdown
from lab.matrix.result import MatrixResult, ResultError, dumps, loads

__all__ = ["RESULT", "html", "junit_xml", "markdown", "read", "write"]

#: The file from which all reports can be made again.
RESULT = "result.json"


def read(path: Path) -> MatrixResult:
    """Read the result in a file, or in a folder. Raises :class:`ResultError`."""
    file = path / RESULT if path.is_dir() else path
    try:
        return loads(file.read_bytes())
    except FileNotFoundError as exc:
        raise ResultError(f"{path}: there is no {RESULT} here") from exc
    except ResultError as exc:
        raise ResultError(f"{file}: {exc}") from exc


def write(result: MatrixResult, folder: Path) -> list[Path]:
    """Write the result and all of its reports into a folder, and return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    contents = {
        RESULT: dumps(result),
        "report.html": html(result).encode(),
        "report.md": markdown(result).encode(),
        "junit.xml": junit_xml(result),
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return [folder / name for name in contents]
