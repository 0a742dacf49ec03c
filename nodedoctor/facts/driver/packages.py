"""Which packages of NVIDIA's driver are installed, and whether an upgrade may replace them unasked."""

from __future__ import annotations

import re
from collections.abc import Iterator

from nodedoctor.children.programs import child
from nodedoctor.declare.registry import Command, Options, fact, probe, skipped
from nodedoctor.facts import shapes
from nodedoctor.facts.driver.nvidia_presence import reason_not_to_ask
from nodedoctor.facts.files import Files
from nodedoctor.model import Evidence, Observation, Unseen, quoted_like
from nodedoctor.record import record

NAME = "driver-packages"
DPKG, RPM = "/var/lib/dpkg/status", "/var/lib/rpm"
_PATTERNS = (
    "nvidia-driver*",
    "nvidia-dkms*",
    "nvidia-kernel*",
    "nvidia-open*",
    "nvidia-compute*",
    "nvidia-utils*",
    "nvidia-fabricmanager*",
    "nvidia-imex*",
    "libnvidia-compute*",
    "libnvidia-ml1",
    "libcuda1",
    "linux-modules-nvidia*",
    "linux-objects-nvidia*",
)
_DRIVER = re.compile(r"(?:^|[:~])(\d{3,4}\.\d{1,4}(?:\.\d{1,4})?)")
_DPKG_FORMAT = "${db:Status-Abbrev}\t${Package}\t${Version}\n"
_RPM_FORMAT = "ii \t%{NAME}\t%{VERSION}\n"


@probe(NAME, timeout=5, after=("pci", "driver-files"))
def driver_packages(options: Options, pci: Observation, files: Observation) -> Command | Observation:
    """Installed packages of NVIDIA's driver with their versions, from dpkg or rpm."""
    if why := reason_not_to_ask(pci, files):
        return skipped(NAME, why)
    there = Files.parse_json(files)
    stats = {} if isinstance(there, Unseen) else there.stats
    dpkg = ("dpkg-query", "--admindir={}", "-W", "-f", _DPKG_FORMAT, *_PATTERNS)
    rpm = ("rpm", "--dbpath={}", "-qa", "--qf", _RPM_FORMAT, "nvidia-*", "kmod-nvidia*", "libnvidia-*")
    for sign, database, words in ((DPKG, "/var/lib/dpkg", dpkg), (RPM, RPM, rpm)):
        if sign not in stats:
            continue
        if options.root not in ("", "/"):
            return Command(child("host/package_query", options.root, database, *words))
        return Command(tuple(word.replace("{}", database) for word in words))
    return skipped(NAME, "neither dpkg nor rpm keeps packages here")


@record
class DriverPackage:
    """One installed package. `driver` is the driver version inside the package's version."""

    name: str
    version: str
    driver: str | None
    held: bool

    @property
    def said(self) -> Evidence:
        """Its line in the package manager's list."""
        return quoted_like(NAME, rf"^.*\t{re.escape(self.name)}\t.*$")


@fact(NAME)
@record
class DriverPackages:
    """The driver's packages; empty where the driver came from NVIDIA's .run file or an image."""

    packages: tuple[DriverPackage, ...]

    @classmethod
    def parse(cls, observation: Observation) -> DriverPackages | Unseen:
        """Read lines of state, name and version; dpkg-query ends with 1 when a pattern matches nothing."""
        return (
            cls(tuple(_parse_packages(observation.text))) if observation.answered else Unseen.of(observation)
        )

    def drivers(self) -> tuple[str, ...]:
        """The different driver versions among the packages, in their order."""
        return tuple(dict.fromkeys(package.driver for package in self.packages if package.driver))


def _parse_packages(text: str) -> Iterator[DriverPackage]:
    for line in text.splitlines():
        state, _, rest = line.partition("\t")
        name, _, version = (part.strip() for part in rest.partition("\t"))
        if shapes.package_name(name) and shapes.version(version) and state[1:2] == "i":
            match = _DRIVER.search(version)
            yield DriverPackage(name, version, match[1] if match else None, held=state[:1] == "h")
