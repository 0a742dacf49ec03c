"""Did the kernel drop packets, or refuse files, because one of its tables was full?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from nodedoctor.declare.registry import check
from nodedoctor.facts.kernel.events import FullKind, evidence_of, times
from nodedoctor.facts.kernel.kernel_log import KernelLog
from nodedoctor.model import Finding, Fix, Moment, Step
from nodedoctor.steps import look, repair

_FULL: Mapping[FullKind, tuple[str, str, tuple[Step, ...]]] = {
    "connections": (
        "conntrack table full, packets dropped",
        "Raise the limit of tracked connections, or exclude the job's interface from tracking.",
        (
            look("sysctl net.netfilter.nf_conntrack_count net.netfilter.nf_conntrack_max"),
            repair("sudo sysctl -w net.netfilter.nf_conntrack_max=1048576"),
        ),
    ),
    "neighbours": (
        "table of neighbours (ARP) full, packets dropped",
        "Raise the limit of neighbours above the number of nodes and containers in its networks.",
        (
            look("ip -4 neigh | wc -l"),
            look("sysctl net.ipv4.neigh.default.gc_thresh3"),
            repair("sudo sysctl -w net.ipv4.neigh.default.gc_thresh3=16384"),
            repair("sudo sysctl -w net.ipv4.neigh.default.gc_thresh2=8192"),
        ),
    ),
    "tcp-memory": (
        "memory of TCP used up, connections stall or are dropped",
        "Find the process with so many connections or unread bytes; then raise the limit.",
        (look("cat /proc/net/sockstat"), look("sysctl net.ipv4.tcp_mem"), look("ss -s")),
    ),
    "files": (
        "no open files left on the whole node, opens and connections fail",
        "Find the process with so many open files; then raise the limit.",
        (look("cat /proc/sys/fs/file-nr"), look("nodedoctor limits.nofile")),
    ),
}


@check("kernel.network", "Full tables of the kernel", tags={"fast", "net"}, stage="preview")
def network(log: KernelLog, moment: Moment) -> Iterator[Finding]:
    """Messages of the kernel that it dropped packets, or refused files, because a table of its own was full.

    Why: jobs over hundreds of nodes open thousands of connections; those that get none time out, and the job
    waits for a rank that is well.
    Fix disturbs: nothing.
    Judges: WARN when since boot the table of tracked connections, of neighbours or of open files, or TCP's
    memory, was full.
    Fix: Raise the limit that the finding names.
    Threshold: The kernel's own limits (linux, Documentation/networking, ip-sysctl.rst and
    nf_conntrack-sysctl.rst); what to raise them to is our choice.
    False positives: A scan of ports, or a server on this node that does not train.
    Error texts:
    - nf_conntrack: table full, dropping packet
    - neighbor table overflow!
    - TCP: out of memory -- consider tuning tcp_mem
    - VFS: file-max limit reached
    """
    events = log.since(log.full, moment)
    for kind, (meaning, advice, steps) in _FULL.items():
        same = [event for event in events if event.kind == kind]
        if not same:
            continue
        summary, subject, evidence = f"{meaning}{times(same)}", f"table:{kind}", evidence_of(same)
        if same[-1].when.at < log.booted:
            yield Finding.info(summary, subject=subject, evidence=evidence)
        else:
            fix = Fix(advice, steps, "config", "nothing", "nodedoctor kernel.network")
            yield Finding.warn(summary, subject=subject, evidence=evidence, fix=fix)
    if not events:
        yield Finding.ok(f"no full table in {log.span}")
