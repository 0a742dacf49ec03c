"""Are all trays of the IMEX domain ready, and do they reach each other?"""

from __future__ import annotations

from collections.abc import Iterator

from nodedoctor.declare.registry import check
from nodedoctor.facts.fabric.imex_domain import NAME, ImexDomain
from nodedoctor.model import Finding, Fix, quoted_like
from nodedoctor.steps import last_resort, look
from nodedoctor.wording import comma_list, count_with_noun

_GUIDE = "https://docs.nvidia.com/multi-node-nvlink-systems/imex-guide/"
_MARKS = {
    "!V!": "IMEX of another version",
    "!M!": "another list of trays in nodes_config.cfg",
    "I": "not reachable",
    "N": "never connected",
    "R": "connection lost",
    "D": "disconnected",
}
"""Letters of the table of connections that name a trouble, as its own legend explains them."""


@check(
    "fabric.imex-domain",
    "IMEX domain (all trays)",
    tags={"nvlink", "service"},
    stage="preview",
    explained_by=("fabric.imex",),
)
def imex_domain(domain: ImexDomain) -> Iterator[Finding]:
    """The state of the IMEX domain and of each of its trays, as `nvidia-imex-ctl -N` prints them.

    Why: while one tray is not ready, jobs that share memory with it over NVLink do not start.
    Fix disturbs: jobs across trays of the rack.
    Judges: WARN when the domain is not UP, or a tray is not READY or of another version.
    Fix: Make version and nodes_config.cfg equal on all trays, and restart IMEX on the trays named.
    Threshold: The words of nvidia-imex-ctl (IMEX guide; dcgm_fields.h, DCGM_FI_IMEX_DOMAIN_STATUS).
    False positives: A tray out of service that nodes_config.cfg still lists.
    Error texts:
    - MNNVL (cliqueSize 4) is available but not working on this system
    """
    behind = [node for node in domain.nodes if node.status != "READY"]
    versions = {node.version for node in domain.nodes if node.version and node.version[0].isdigit()}
    troubles = [f"{count_with_noun(len(behind), 'tray')} not ready"] if behind else []
    troubles += [f"versions {comma_list(sorted(versions))}"] if len(versions) > 1 else []
    troubles += [meaning for mark, meaning in _MARKS.items() if mark in domain.marks]
    state = f"domain {domain.state}" if domain.state else "domain state unknown"
    evidence = [node.said for node in behind[:4]]
    if domain.state:
        evidence.append(quoted_like(NAME, r"^[ \t]*Domain State:.*"))
    if troubles or domain.state not in ("UP", None):
        summary = f"{state}: {'; '.join(troubles)}" if troubles else state
        yield Finding.warn(summary, evidence=evidence, fix=_imex_fix(behind[0].host if behind else ""))
    elif domain.state is None:
        yield Finding.unknown("unparsable", f"{count_with_noun(len(domain.nodes), 'tray')} READY, {state}")
    else:
        yield Finding.ok(f"{state}, {count_with_noun(len(domain.nodes), 'tray')} READY", evidence=evidence)


def _imex_fix(host: str) -> Fix:
    where = f" Begin with {host}." if host else ""
    return Fix(
        "Compare the version of IMEX and /etc/nvidia-imex/nodes_config.cfg on all trays, then restart IMEX "
        f"on those that are not ready.{where}",
        (
            look("nvidia-imex-ctl -N"),
            look("cat /etc/nvidia-imex/nodes_config.cfg"),
            look("sudo tail -50 /var/log/nvidia-imex.log"),
            last_resort(
                "sudo systemctl restart nvidia-imex",
                when="version and nodes_config.cfg are equal on all trays",
                disturbs="jobs across trays of the rack",
            ),
        ),
        "restart-service",
        "jobs across trays of the rack",
        "nodedoctor fabric.imex-domain",
        _GUIDE,
    )
