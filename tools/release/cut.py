"""`make release VERSION=x.y.z`: date the changelog, set the version, commit and tag. Pushes nothing.

    cut.py VERSION             on this clone, after every check below
    cut.py VERSION --dry-run   the checks, and what would change
    cut.py VERSION --released  whether this tree is that release: version, changelog, nothing open before it
    cut.py VERSION --notes     what the changelog says of it

The standard library is enough: it must work before anything is installed.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

ROOT = Path.cwd()
VERSION_FILE = "nodedoctor/__init__.py"
CHANGELOG = "CHANGELOG.md"
BRANCH = "main"
_VERSION = re.compile(r'^__version__ = "([^"]+)"$', re.M)
_NUMBER = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)")
_UNRELEASED = "## [Unreleased]\n"


def git(*words: str) -> str:
    """What git prints."""
    return subprocess.run(
        ["git", *words], check=True, capture_output=True, text=True, cwd=ROOT
    ).stdout.strip()


def number(text: str) -> tuple[int, ...] | None:
    """A version as numbers, to be compared; None if it is none."""
    found = _NUMBER.fullmatch(text)
    return tuple(int(part) for part in found.groups()) if found else None


def section(changelog: str, heading: str) -> str | None:
    """What a changelog says below a heading, up to the next one; None without the heading."""
    found = re.search(rf"^## \[{re.escape(heading)}\].*\n((?:(?!## ).*\n?)*)", changelog, re.M)
    return found[1].strip() if found else None


def objections(version: str) -> Iterator[str]:
    """Why this tree cannot become that release."""
    wanted = number(version)
    if wanted is None:
        yield f"VERSION is {version!r}: expected three numbers, as 1.2.3"
        return
    if git("status", "--porcelain"):
        yield "the tree is not clean: commit or stash what `git status` lists"
    if (branch := git("rev-parse", "--abbrev-ref", "HEAD")) != BRANCH:
        yield f"the branch is {branch}: releases are made on {BRANCH}"
    tags = git("tag", "--list", "v*").split()
    if f"v{version}" in tags:
        yield f"the tag v{version} exists"
    here = _VERSION.findall((ROOT / VERSION_FILE).read_text(encoding="utf-8"))
    if here and (now := number(here[0])) and wanted < now:
        yield f"{version} is older than {here[0]}, what {VERSION_FILE} says"
    for tag in tags:
        if (released := number(tag[1:])) and wanted < released:
            yield f"{version} is older than the tag {tag}"
    changelog = (ROOT / CHANGELOG).read_text(encoding="utf-8")
    if section(changelog, version) is not None:
        yield f"{CHANGELOG} has a section for {version} already"
    if not section(changelog, "Unreleased"):
        yield f"{CHANGELOG} has nothing under [Unreleased]: a release says what changed"
    if len(_VERSION.findall((ROOT / VERSION_FILE).read_text(encoding="utf-8"))) != 1:
        yield f"{VERSION_FILE} has no single line __version__"


def differences(version: str) -> Iterator[str]:
    """In what this tree is not that release."""
    if (found := _VERSION.findall((ROOT / VERSION_FILE).read_text(encoding="utf-8"))) != [version]:
        yield f"{VERSION_FILE} says {found}, not {version}"
    changelog = (ROOT / CHANGELOG).read_text(encoding="utf-8")
    if not section(changelog, version):
        yield f"{CHANGELOG} says nothing of {version}"
    if section(changelog, "Unreleased"):
        yield f"{CHANGELOG} has lines under [Unreleased] that belong to {version}"


def changed(version: str, day: str) -> dict[str, str]:
    """The two files that a release changes, by path."""
    changelog = (ROOT / CHANGELOG).read_text(encoding="utf-8")
    code = (ROOT / VERSION_FILE).read_text(encoding="utf-8")
    return {
        CHANGELOG: changelog.replace(_UNRELEASED, f"{_UNRELEASED}\n## [{version}] - {day}\n", 1),
        VERSION_FILE: _VERSION.sub(f'__version__ = "{version}"', code),
    }


def cut(version: str, files: dict[str, str]) -> None:
    """Write, commit and tag."""
    for path, text in files.items():
        (ROOT / path).write_text(text, encoding="utf-8")
    if git("status", "--porcelain"):
        git("commit", "--quiet", "--all", "--message", f"Release {version}")
    git("tag", "--annotate", f"v{version}", "--message", f"nodedoctor {version}")


def main(words: list[str]) -> int:
    """Check, and then do what was asked."""
    parser = argparse.ArgumentParser(prog="make release VERSION=")
    parser.add_argument("version")
    asked = parser.add_mutually_exclusive_group()
    for name in ("dry-run", "released", "notes"):
        asked.add_argument(f"--{name}", action="store_true")
    options = parser.parse_args(words)
    version = options.version
    if options.notes:
        print(section((ROOT / CHANGELOG).read_text(encoding="utf-8"), version) or "")
        return 0
    reasons = list(differences(version) if options.released else objections(version))
    for reason in reasons:
        print(f"release: {reason}", file=sys.stderr)
    if reasons or options.released:
        return int(bool(reasons))
    files = changed(version, datetime.now(timezone.utc).date().isoformat())
    if options.dry_run:
        print(f"release: nothing is in the way of {version}; it would change {' and '.join(files)},")
        print(f"release: commit them, and tag v{version}. Nothing was changed.")
        return 0
    cut(version, files)
    print(
        f"release: v{version} is committed and tagged here, and nowhere else."
        f" To publish it: git push origin {BRANCH} v{version}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
