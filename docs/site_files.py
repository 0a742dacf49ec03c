"""What the site has beside the pages in docs/: a hook of mkdocs.

`make docs` writes pages of checks and tables, and pictures, to build/docs; documents at the top of the
repository are pages too; and the single file and the wheel can be downloaded from the site.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from io import BytesIO
from itertools import groupby
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
MADE = ROOT / "build" / "docs"
DOCUMENTS = {
    "contributing.md": "CONTRIBUTING.md",
    "security.md": "SECURITY.md",
    "changelog.md": "CHANGELOG.md",
}
DOWNLOADS = ("nodedoctor.pyz", "*.whl")


def on_config(config: Any) -> Any:
    """Sections of the navigation for each subject of checks and each cause of triage."""
    checks = sorted(path.stem for path in (MADE / "checks").glob("*.md") if path.stem != "index")
    subjects = groupby(checks, key=lambda check: check.partition(".")[0])
    pages = [{subject: [{check: f"checks/{check}.md"} for check in found]} for subject, found in subjects]
    config.nav.append({"Checks": [{"All checks": "checks/index.md"}, *pages]})
    kinds = sorted(path.relative_to(MADE / "kinds") for path in (MADE / "kinds").glob("*/*.md"))
    causes = groupby(kinds, key=lambda path: path.parent.name)
    ends = [{cause: [{path.stem: f"kinds/{path}"} for path in found]} for cause, found in causes]
    config.nav.append({"Ends of jobs": [{"All of them": "kinds/index.md"}, *ends]})
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add what was made to what lies in docs/."""
    for uri, source in added():
        files.append(File.generated(config, uri, abs_src_path=str(source)))
    files.append(File.generated(config, "download/index.md", content=downloads()))
    files.append(File.generated(config, "download/recipes.zip", content=recipes()))
    return files


def added() -> Iterator[tuple[str, Path]]:
    """Path in the site, and the file it comes from."""
    for path in sorted(MADE.rglob("*")):
        if path.is_file() and path.parent.name != "output":  # those are within pages
            yield path.relative_to(MADE).as_posix(), path
    for uri, name in DOCUMENTS.items():
        yield uri, ROOT / name
    for path in built():
        yield f"download/{path.name}", path


def built() -> list[Path]:
    """What `make pyz` and `make packages` left."""
    return [path for pattern in DOWNLOADS for path in sorted((ROOT / "dist").glob(pattern))]


def recipes() -> bytes:
    """The folders recipes/ and examples/, which the commands of the pages name."""
    made = BytesIO()
    with ZipFile(made, "w") as archive:
        for path in sorted(Path(__file__).parent.glob("*/**/*")):
            name = path.relative_to(Path(__file__).parent).as_posix()
            if path.is_file() and name.startswith(("recipes/", "examples/")):
                archive.write(path, name)
    return made.getvalue()


def downloads() -> str:
    """The page of the downloads."""
    rows = (
        f"| [{path.name}]({path.name}) | {len(data) / 2**20:.1f} MiB | `{sha256(data).hexdigest()}` |"
        for path in built()
        for data in (path.read_bytes(),)
    )
    text = "\n".join(("# Downloads", "", "| file | size | SHA-256 |", "|---|---|---|", *rows, ""))
    text += "\n[recipes.zip](recipes.zip): the folders `recipes/` and `examples/` that commands name.\n"
    return text
