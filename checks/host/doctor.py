"""Is the doctor itself complete: do its plug-ins load, are its waivers readable and in force?"""

from collections.abc import Iterator

from nodedoctor.children.exhaustion import Starts
from nodedoctor.declare.registry import check
from nodedoctor.engine.plugins import Plugins
from nodedoctor.facts.host.waivers import PATH, Waivers
from nodedoctor.grouping import group_pairs
from nodedoctor.knowledge.fixes.exhausted import fix_of
from nodedoctor.model import Evidence, Finding, Fix, Moment, reading
from nodedoctor.steps import look
from nodedoctor.wording import count_with_noun


@check("doctor.plugins", "Plug-ins", tags={"fast"})
def plugins(plugins: Plugins) -> Iterator[Finding]:
    """Whether each check file from entry points and folders could be imported.

    Why: a check that did not load checks nothing, and no other check reports it.
    Judges: UNKNOWN for each check file that could not be imported, with the error.
    Fix: Repair the file, or take it out of the folder.
    Threshold: No threshold.
    False positives: None known.
    """
    for broken in plugins.broken:
        yield Finding.unknown(
            "crash",
            f"{broken.name} did not load: {broken.error.splitlines()[-1]}",
            subject=f"plugin:{broken.name}",
            evidence=[Evidence("plugins", broken.error)],
            fix=Fix(
                f"Repair or remove {broken.where}.",
                (look("nodedoctor list checks"),),
                action="config",
                verify="nodedoctor doctor.plugins",
            ),
        )
    if not plugins.broken:
        yield Finding.ok(f"{count_with_noun(plugins.loaded, 'check')} loaded")


@check("doctor.waivers", "Waivers", tags={"fast"})
def waivers(waivers: Waivers, moment: Moment) -> Iterator[Finding]:
    """The lines of /etc/nodedoctor/waivers: `id until reason`, the date as YYYY-MM-DD.

    Why: an expired or mistyped waiver has no effect, and its finding fails the node again.
    Judges: WARN for a line that is no waiver, or one whose date has passed.
    Fix: Write the line as `id until reason` with a date, or remove it.
    Threshold: The format that the documentation of nodedoctor gives.
    False positives: None known.
    """
    for line in waivers.unreadable:
        yield Finding.warn(
            f"not a waiver: {line!r}",
            evidence=[Evidence("waivers", line)],
            fix=Fix(f"Write it as `id until reason` in {PATH}.", (look("cat {}", PATH),), action="config"),
        )
    for waiver in waivers.waivers:
        if moment.started.date() > waiver.until:
            summary = f"{waiver.id}: expired on {waiver.until} ({waiver.reason})"
            yield Finding.info(summary, subject=f"waiver:{waiver.id}")
    if not waivers.waivers and not waivers.unreadable:
        yield Finding.skip("no waivers on this node")
    elif not waivers.unreadable:
        yield Finding.ok(f"{count_with_noun(len(waivers.waivers), 'waiver')}")


@check("doctor.exhausted", "Process and file limits", tags={"fast"})
def exhausted(starts: Starts) -> Iterator[Finding]:
    """Whether every program could be started, and which limit was hit otherwise.

    Why: the same limit keeps a training job from starting its ranks and data loaders, with a misleading
    message.
    Fix disturbs: the session, container or job whose limit it is: it must be restarted.
    Judges: FAIL when a program could not be started and the limit that was met is known; UNKNOWN when it is
    not; PASS when every program could be started.
    Fix: Raise the limit that the finding names, or end what uses it up.
    Threshold: None of ours: the kernel refused (EAGAIN, ENOMEM, EMFILE, ENFILE of fork(2), pipe(2), open(2)).
    False positives: A limit of this session alone (ulimit, a container) says nothing about jobs elsewhere.
    """
    by_resource = group_pairs((what.resource, (probe, what)) for probe, what in starts.failed.items())
    for resource, met in sorted(by_resource.items(), key=lambda item: not item[1][0][1].known):
        _, what = met[0]
        evidence = [reading(probe, "@note") for probe, _ in met[:3]]
        failure = f"{count_with_noun(len(met), 'program')} could not be started"
        if not what.known:
            summary = f"{failure}: {what.words}"
            yield Finding.unknown("crash", summary, evidence=evidence, fix=fix_of(resource))
        else:
            finding = Finding.fail(f"{failure}: {what.words}", evidence=evidence, fix=fix_of(resource))
            yield finding.led_by(f"limit reached: {what.words}")
    if not by_resource:
        yield Finding.ok("all programs could be started")
