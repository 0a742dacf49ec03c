"""What IMEX says of the trays of its domain: `nvidia-imex-ctl -N`."""

from __future__ import annotations

import re

from nodedoctor.declare.registry import Command, Options, fact, probe, skipped
from nodedoctor.facts.driver.services import Services
from nodedoctor.facts.gpu.board import Board
from nodedoctor.facts.pci.pci import Pci
from nodedoctor.knowledge.gpus import GpuModel, gpu_model, platforms_of
from nodedoctor.model import Evidence, Observation, Unseen, quoted_like
from nodedoctor.patterns import regex
from nodedoctor.record import record

NAME = "imex-domain"
UNIT = "nvidia-imex"
_NO_DOMAIN = "no multi-node NVLink here"
_NOT_RUNNING = "nvidia-imex does not run here"
_NODE = regex(
    r"^[ \t]*Node #(?P<number>\d{1,4})\s+[-*]\s+(?P<host>\S{1,255})(?:\s+\*)?\s+-\s+(?P<status>[A-Z_]{2,40})"
    r"(?:\s+-\s+Version:\s*(?P<version>\S{1,40}))?",
    re.MULTILINE,
)
_STATE = regex(r"^[ \t]*Domain State:\s*(?P<state>[A-Z_]{2,40})", re.MULTILINE)
_ROW = regex(r"^[ \t]*(?P<number>\d{1,4})(?P<marks>(?:[ \t]+(?:[INRDAC]|!V!|!M!))+)[ \t]*$", re.MULTILINE)


@probe(NAME, timeout=8, after=("pci", "services"))
def imex_domain(options: Options, pci: Observation, services: Observation) -> Command | Observation:
    """`nvidia-imex-ctl -N` where the service runs: it asks the daemons of all trays, which may take long."""
    bus, units = Pci.parse(pci), Services.parse(services)
    models = [gpu_model("", gpu.pci_id) for gpu in bus.gpus] if isinstance(bus, Pci) else None
    if models is not None and not any(map(_may_have_domain, models)):
        return skipped(NAME, _NO_DOMAIN)
    unit = units.get(UNIT) if isinstance(units, Services) else None
    if unit is None or not unit.running:
        return skipped(NAME, _NOT_RUNNING)
    return Command(("nvidia-imex-ctl", "-N"))


def _may_have_domain(model: GpuModel | None) -> bool:
    """Whether GPUs of this model come in trays that share memory over NVLink, whatever part is ours."""
    return model is not None and any(board.imex for board in platforms_of(model))


@record
class ImexNode:
    """One tray of the domain. `status` is READY, UNAVAILABLE, WAITING_FOR_PEERS ... (dcgm_fields.h)."""

    number: int
    host: str
    status: str
    version: str | None = None

    @property
    def said(self) -> Evidence:
        """Its line."""
        return quoted_like(NAME, rf"^[ \t]*Node #{self.number}\s.*")


def _not_asked(observation: Observation, board: Board | Unseen, services: Services | Unseen) -> Unseen | None:
    """Why it was not asked; older recordings have no answer of this tool, but the board and the services."""
    unit = services.get(UNIT) if isinstance(services, Services) else None
    model = board.known_model if isinstance(board, Board) else None
    if model is not None and not _may_have_domain(model):
        return Unseen.skip(_NO_DOMAIN)
    if isinstance(services, Services) and not (unit and unit.running):
        return Unseen.skip(_NOT_RUNNING)
    return Unseen.skip(observation.note) if observation.note in (_NO_DOMAIN, _NOT_RUNNING) else None


@fact(NAME, Board, Services)
@record
class ImexDomain:
    """The state of the domain (UP, DEGRADED, DOWN; None not known), its trays, and marks between them.

    `marks` are the letters in the table of connections: C is connected, !V! another version, !M!
    another list of trays.
    """

    state: str | None
    nodes: tuple[ImexNode, ...]
    marks: tuple[str, ...] = ()

    @classmethod
    def parse(
        cls, observation: Observation, board: Board | Unseen, services: Services | Unseen
    ) -> ImexDomain | Unseen:
        """Read the text; without any tray or state it is none. Skipped where the node has no domain."""
        if not observation.answered:
            return _not_asked(observation, board, services) or Unseen.of(observation)
        nodes = {
            int(match["number"]): ImexNode(
                int(match["number"]), match["host"], match["status"], match["version"]
            )
            for match in _NODE.finditer(observation.text)
        }
        state = _STATE.search(observation.text)
        if not nodes and not state:
            return Unseen.of(observation)
        marks = dict.fromkeys(
            mark for row in _ROW.finditer(observation.text) for mark in row["marks"].split()
        )
        trays = tuple(nodes[number] for number in sorted(nodes))
        return cls(state["state"] if state else None, trays, tuple(marks))
