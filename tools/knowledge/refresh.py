"""Compare the pins in the knowledge tables with the metadata of the package index; `make knowledge` runs it.

    python tools/knowledge/refresh.py [--write] [PACKAGE...]

Only metadata is asked for, with pip; no package is installed. `+` is a release the tables lack, `~` one whose
requirements differ. With --write new rows go into the tables (not what must be read from a wheel itself, such
as the architectures torch was compiled for); the difference is then left to `git diff` and to the reader.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

TABLES = Path(__file__).resolve().parents[2] / "nodedoctor" / "knowledge" / "tables"
MATTER = re.compile(
    r"torch(vision|audio)?|triton|nvidia-.*|cuda-.*|flashinfer-python|transformers|ray|xformers|sglang-kernel"
)
PACKAGES = ("torchvision", "torchaudio", "xformers", "vllm", "sglang")
PLATFORM = ("--only-binary", ":all:", "--python-version", "3.12", "--platform", "manylinux_2_28_x86_64")
MOST_NEW = 5
SECONDS = 120


def main(words: list[str]) -> int:
    """Show what differs; 1 when something does."""
    write = "--write" in words
    named = [word for word in words if not word.startswith("--")]
    found = False
    for package in named or ("torch", *PACKAGES):
        for line, row in differences(package):
            print(line)
            found = True
            if write and row:
                insert(row)
    print("the tables differ from the index" if found else "the tables agree with the index")
    return int(found)


def differences(package: str) -> Iterator[tuple[str, dict[str, Any] | None]]:
    """A line for each release that is new or differs, and the row to add for a new one."""
    table = "torch_pins" if package == "torch" else "stack_pins"
    rows = known(json.loads((TABLES / f"{table}.json").read_text(encoding="utf-8")), package)
    newest = max(rows, key=numbers, default="")
    released = versions(package)
    for version in [one for one in released if numbers(one) > numbers(newest)][:MOST_NEW]:
        row = row_of(package, metadata(package, version))
        yield f"+ {package} {version}: {json.dumps(row)}", row
    if newest in released:
        said = row_of(package, metadata(package, newest))
        for line in compare(f"{package} {newest}", rows[newest], said):
            yield line, None


def known(table: Mapping[str, Any], package: str) -> dict[str, dict[str, Any]]:
    """The rows of a package by version: torch's wheels for x86_64, else its releases."""
    if package == "torch":
        return {row["torch"]: row for row in table["wheels"] if row["machine"] == "x86_64"}
    return {row["version"]: row for row in table["packages"] if row["package"] == package}


def compare(name: str, ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> Iterator[str]:
    """What the table requires otherwise than the index says."""
    for key in ("requires", "pins"):
        mine, said = ours.get(key, {}), theirs.get(key, {})
        for package in sorted({*mine, *said}):
            if mine.get(package) != said.get(package):
                yield f"~ {name}: {package} {mine.get(package, '-')} -> {said.get(package, '-')}"


def row_of(package: str, said: Mapping[str, Any]) -> dict[str, Any]:
    """A row as the tables write it, from the metadata of one release."""
    wanted = dict(requirement for line in said.get("requires_dist", []) for requirement in split(line))
    if package == "torch":
        pins = {name: spec.removeprefix("==") for name, spec in wanted.items()}
        row = {"torch": said["version"], "machine": "x86_64", "python": said.get("requires_python", "")}
        return {**row, "pins": pins, "source": "wheel"}
    wanted = {name: spec for name, spec in wanted.items() if not name.startswith(("nvidia-", "cuda-"))}
    row = {"package": package, "version": said["version"], "requires": wanted}
    return {**row, "python": said.get("requires_python", ""), "source": "pypi"}


def split(line: str) -> Iterator[tuple[str, str]]:
    """Name and specifier of a requirement that applies on Linux x86_64 without extras, if it matters."""
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        asked = Requirement(line)
    except InvalidRequirement:
        return
    here = {"platform_system": "Linux", "sys_platform": "linux", "platform_machine": "x86_64", "extra": ""}
    name = re.sub(r"[-_.]+", "-", asked.name).lower()
    if MATTER.fullmatch(name) and (asked.marker is None or asked.marker.evaluate(here)):
        yield name, str(asked.specifier)


def insert(row: Mapping[str, Any]) -> None:
    """Add a row: rows stand one to a line, a package's newest first, torch's wheels oldest first."""
    torch = "torch" in row
    path = TABLES / ("torch_pins.json" if torch else "stack_pins.json")
    lines = path.read_text(encoding="utf-8").splitlines()
    begins = '{"torch": ' if torch else f'{{"package": "{row["package"]}"'
    where = [
        at for at, line in enumerate(lines) if line.startswith(begins) and (not torch or "machine" in line)
    ]
    at = where[-1] if torch else where[0]
    if torch:
        last = lines[at].endswith(",")
        lines[at] = lines[at].removesuffix(",") + ","
        lines.insert(at + 1, json.dumps(row) + ("," if last else ""))
    else:
        lines.insert(at, json.dumps(row) + ",")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def versions(package: str) -> list[str]:
    """The releases the index has, newest first; none when it does not answer."""
    done = _pip("index", "versions", package)
    listed = re.search(r"^Available versions: (.*)$", done, re.MULTILINE)
    return [one for one in listed.group(1).split(", ") if re.fullmatch(r"[\d.]+", one)] if listed else []


def metadata(package: str, version: str) -> dict[str, Any]:
    """The metadata of one release, without downloading it where the index serves metadata apart."""
    words = ("install", "--dry-run", "--no-deps", "--ignore-installed", "-q", "--report", "-", *PLATFORM)
    answer = _pip(*words, "--target", "/nonexistent", f"{package}=={version}")
    installed = json.loads(answer)["install"] if answer.strip() else []
    return dict(installed[0]["metadata"]) if installed else {"version": version}


def _pip(*words: str) -> str:
    argv = [sys.executable, "-m", "pip", "--disable-pip-version-check", *words]
    return subprocess.run(argv, stdout=subprocess.PIPE, text=True, timeout=SECONDS, check=False).stdout


def numbers(version: str) -> tuple[int, ...]:
    """A version as numbers; its post part counts last."""
    return tuple(int(part) for part in re.findall(r"\d+", version))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
