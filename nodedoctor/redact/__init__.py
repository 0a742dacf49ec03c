"""`--redact`: recordings and reports with stand-ins for names, addresses, serials, UUIDs and users.

A site cannot send a recording away that names its hosts, people and network. Here the same original becomes
the same stand-in in everything one run says, and every value keeps the shape that parsers and checks go by,
so that a redacted recording is judged like the original.

Four things are replaced: what `learn` found where names and serials are known to be (`gpu-a3-017` becomes
`node-1` wherever it is a word, also as part of `gpu-a3-017.site.example`, and with it the other
`gpu-a3-NNN`), what `prose` knows by its ending or by the words of a log around it (`fs07.site.example`,
`server X`, `user X`, `X@o2ib`, shares, buckets, pods, other people's programs on a GPU), what `folders` finds
in paths (projects, mounts, environments, scripts), and what has an
unmistakable shape (UUID, MAC, IPv6, GUID, IPv4 that is no version, mail, iSCSI names, ids of access keys and
of Slurm's jobs, what follows `/home/`). A name that is an ordinary word (a host called `node`, a user called
`data`: see `words`) is replaced only where a name must be: after `/home/`, `//`, `USER=` and the like,
before `@`, as the value of a known key. PCI addresses, versions, times, names of interfaces and adapters,
accounts of distributions and addresses that mean the same everywhere stay, and so do the folders of the
system, containers' images, programs that are not on a GPU, plug-ins, and numbers of users outside of `uid_N`
and `uid=N`.

What cannot be promised: free text may name anything in words that nothing marks as a name (`rack of team
blue`, a model in a folder's name, a domain with an ending that `prose` does not list). A recording is text:
the sender reads it first, and the request for a recording says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from nodedoctor.model import Observation
from nodedoctor.record import replace
from nodedoctor.redact import structures
from nodedoctor.redact.known_names import HOST_KEYS, LABEL_KEYS, USER_KEYS, corpus_of, learn
from nodedoctor.redact.standins import StandIns
from nodedoctor.redact.text import Replacer
from nodedoctor.report.document import Report

_KINDS = {
    **dict.fromkeys((*HOST_KEYS, "host"), "host"),
    **dict.fromkeys(USER_KEYS, "user"),
    **dict.fromkeys(LABEL_KEYS, "label"),
    **dict.fromkeys(("job", "SLURM_JOB_ID", "SLURM_JOBID"), "job"),
}


class Redaction:
    """The stand-ins of one run. What was redacted already must not be given to it again."""

    def __init__(self, replacer: Replacer, stand_ins: StandIns) -> None:
        self._replacer = replacer
        self._stand_ins = stand_ins
        self._seen: dict[str, str] = {}  # facts and reports say most things many times

    @classmethod
    def of(
        cls,
        observations: Iterable[Observation],
        node: Mapping[str, Any],
        options: Mapping[str, Any] | None = None,
    ) -> Redaction:
        """The stand-ins for what these name; the same for the same, in whatever order they are then used."""
        observed = tuple(observations)
        corpus = corpus_of(observed, node, options or {})
        originals = learn(observed, corpus)
        stand_ins = StandIns(corpus)
        for name in originals.hosts:
            stand_ins.host(name)
        for name in originals.users:
            stand_ins.user(name)
        for name in originals.labels:
            stand_ins.label(name)
        redaction = cls(Replacer(originals, stand_ins), stand_ins)
        redaction.node(node)
        for observation in observed:
            redaction.observation(observation)
        return redaction

    def text(self, text: str) -> str:
        """The text with every original in it replaced."""
        redacted = self._seen.get(text)
        if redacted is None:
            redacted = self._seen[text] = self._replacer.text(text)
        return redacted

    def observation(self, observation: Observation) -> Observation:
        """What a probe said, for a recording."""
        return replace(
            observation,
            text=structures.redacted(observation.probe, self.text(observation.text), self._stand_ins),
            note=self.text(observation.note),
            argv=tuple(map(self.text, observation.argv)),
        )

    def node(self, node: Mapping[str, Any]) -> dict[str, Any]:
        """What names a node, and what a report's headline says of it."""
        document: dict[str, Any] = self.document(dict(node))
        return document

    def document(self, value: Any, key: str = "") -> Any:
        """Plain data with every text in it replaced, keys too; numbers stay, anything else becomes text."""
        if isinstance(value, str):
            kind = _KINDS.get(key)
            return self._replacer.name(kind, value) if kind else self.text(value)
        if isinstance(value, Mapping):
            return {
                self._redact_key(name): self.document(member, str(name)) for name, member in value.items()
            }
        if isinstance(value, set | frozenset):
            return {self.document(member, key) for member in value}
        if isinstance(value, list | tuple):
            members = [self.document(member, key) for member in value]
            return members if isinstance(value, list) else tuple(members)
        return value if value is None or isinstance(value, int | float) else self.text(str(value))

    def report(self, report: Report) -> Report:
        """A report in which nothing but the tool's own words, numbers and times is as it was."""
        return structures.redacted_report(report, self)

    def _redact_key(self, key: Any) -> Any:
        return self.text(key) if isinstance(key, str) else key
