"""A fleet as text: one problem is told once, two are kept apart, and every node is counted once."""

from __future__ import annotations

from nodedoctor.fleet.compare.causes import shared_causes
from nodedoctor.fleet.compare.grouping import families, fix
from nodedoctor.fleet.compare.outliers import judge
from nodedoctor.fleet.document import document
from nodedoctor.fleet.model import Fleet, Node, NodeCause, Oddity, Problem, ValueGroup
from nodedoctor.fleet.text import render
from nodedoctor.model import Status
from nodedoctor.report.steps import CUT_FIX

TICKET = "Reset the GPUs. Into the ticket: H100, serial {0}, UUID GPU-{0}. In a cloud, ask for another one."


def links(host: str, gpu: int = 3, up: int = 16, fix: str = "Reseat it.") -> Node:
    problem = Problem("nvlink.links", f"gpu:{gpu}", Status.FAIL, f"{up} of 18 NVLinks up", fix=fix)
    return Node(host, verdict=Status.FAIL, problems=(problem,))


def text(*nodes: Node, oddities: tuple[Oddity, ...] = (), quiet: bool = False) -> str:
    return render(document(Fleet("0", "ssh", "", 1.0, nodes, oddities)), width=200, quiet=quiet)


def broken(host: str, gpu: int = 3, owner: str = "provider", command: str = "nvidia-smi") -> Node:
    """A node with one cause, what follows from it, and a problem of its own."""
    root = Problem("nvlink.links", f"gpu:{gpu}", Status.FAIL, "16 of 18 NVLinks up", fix="Reset it. " * 30)
    shown = Problem("kernel.xid", f"gpu:{gpu}", Status.FAIL, "Xid 74 (2 times)")
    cause = NodeCause(
        "nvlink.links",
        Status.FAIL,
        command=command,
        explains=(root.id, shown.id),
        headline=f"GPU {gpu} lost 2 NVLinks",
        owner=owner,
        action="replace-node",
        subjects=(f"gpu:{gpu}",),
    )
    return Node(host, verdict=Status.FAIL, problems=(root, shown), causes=(cause,))


def test_nodes_with_one_cause_are_one_entry_with_the_first_command():
    shown = text(broken("s1"), broken("s2"), broken("s9"))
    lines = shown.splitlines()
    assert lines[2:6] == [
        "causes",
        "FAIL PROV  GPU 3 lost 2 NVLinks; request a replacement [nvlink.links]",
        "     3 nodes s[1-2,9], first on s1:",
        "     $ nvidia-smi",
    ]
    assert lines[8] == "     follows  kernel.xid"
    assert "wrong on the nodes" not in shown and shown.count("lost 2 NVLinks") == 1


def test_other_numbers_are_one_cause_and_each_node_keeps_its_own():
    shown = text(broken("s1"), broken("s2", gpu=5), broken("s3"))
    assert "     2 nodes s[1,3], first on s1:\n     $ nvidia-smi\n     s2: GPU 5 lost 2 NVLinks\n" in shown
    many = text(*(broken(f"s{gpu}", gpu=gpu) for gpu in range(1, 7)))
    assert many.count("lost 2 NVLinks") == 3 and "3 nodes s[4-6]: the same with other numbers" in many


def test_another_owner_is_another_cause():
    one, two = shared_causes([broken("s1"), broken("s2", owner="administrator")])
    assert (one.hosts, two.hosts) == (("s1",), ("s2",))
    shown = text(broken("s1"), broken("s2", owner="administrator"))
    assert "FAIL PROV  GPU 3" in shown and "FAIL ADMIN GPU 3" in shown


def test_the_command_is_for_a_node_that_has_one():
    shown = text(broken("s1", command=""), broken("s2"))
    assert "2 nodes s[1-2], first on s2:" in shown
    assert "$" not in text(broken("s1", command=""))


def test_a_long_fix_ends_with_a_sentence():
    lines = text(broken("s1")).splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("     fix "))
    assert lines[first + 1].endswith("Reset it.") and "Reset" not in lines[first + 2]


def test_no_serial_of_one_node_is_told_for_another():
    shown = text(links("s1", fix=TICKET.format("111")), links("s2", fix=TICKET.format("222")))
    assert "111" not in shown and "222" not in shown
    assert f"fix      Reset the GPUs. In a cloud, ask for another one. {CUT_FIX}" in shown
    assert "serial 111" in text(links("s1", fix=TICKET.format("111")))


def test_subjects_that_differ_are_told():
    shown = text(links("s1", 3), links("s2", 5), links("s3", 5))
    assert "FAIL nvlink.links: 16 of 18 NVLinks up   GPU 5 on 2 nodes s[2-3]; GPU 3 on s1" in shown
    assert "FAIL nvlink.links: GPU 3: 16 of 18 NVLinks up   2 nodes s[1-2]" in text(links("s1"), links("s2"))


def test_numbers_that_are_measured_keep_problems_apart():
    shown = text(links("s1", up=16), links("s2", up=12), links("s3", up=16))
    assert "16 of 18 NVLinks up   2 nodes s1,s3" in shown.replace("s[1,3]", "s1,s3")
    assert "12 of 18 NVLinks up   s2" in shown and shown.count("Reseat it.") == 1
    many = text(*(links(f"s{up}", up=up) for up in range(10, 18)))
    assert many.count("FAIL nvlink.links: GPU 3") == 3 and many.count("Reseat it.") == 1
    assert "FAIL nvlink.links: 5 more with other numbers or subjects   5 nodes s[" in many


def test_identities_do_not_keep_problems_apart():
    def xid(host: str, when: str, pid: int) -> Node:
        said = f"Xid 74 (2 times) at 2026-11-14 {when}: pid {pid} on 0000:5d:00.0"
        return Node(host, verdict=Status.FAIL, problems=(Problem("kernel.xid", "gpu:3", Status.FAIL, said),))

    (ones,) = families((n, n.problems[0]) for n in (xid("a", "08:41:07", 7), xid("b", "09:00:00", 99)))
    (one,) = ones
    assert one.words == "Xid 74 (2 times) at ...: pid ... on 0000:5d:00.0" and one.hosts == ("a", "b")
    assert fix(ones) == ""


def test_what_was_not_seen_is_told_of_those_nodes_only():
    def blind(host: str, *checks: str) -> Node:
        problems = [Problem(check, "", Status.UNKNOWN, "no", reason="not-visible-here") for check in checks]
        return Node(host, verdict=Status.UNKNOWN, problems=tuple(problems))

    shown = text(blind("a", "gpu.x", "gpu.y"), blind("b", "kernel.x", "gpu.y"), blind("c", "kernel.x"))
    assert "not-visible-here: gpu.x   a" in shown
    assert "not-visible-here: gpu.y   2 nodes a,b" in shown
    assert "not-visible-here: kernel.x   2 nodes b,c" in shown


def odd(status: Status, *hosts: str) -> Oddity:
    return Oddity("k", "t", status, "s", "", (ValueGroup("v", hosts),), None, hosts)


def test_the_last_lines_name_whom_the_first_counts():
    nodes = [Node(f"n{number}", verdict=Status.PASS) for number in range(4)]
    careful = Node("w", verdict=Status.WARN, problems=(Problem("a.b", "", Status.WARN, "s"),))
    shown = text(*nodes, careful, oddities=(odd(Status.WARN, "n3"),))
    assert shown.startswith("WARN 5 nodes (ssh): 1 warn, 4 pass")
    assert shown.endswith("WARN w\nPASS 3 nodes n[0-2]\nPASS but different: n3\n")
    barred = text(*nodes, oddities=(odd(Status.FAIL, "n3"),))
    assert barred.startswith("FAIL 4 nodes (ssh): 1 fail, 3 pass")
    assert barred.endswith("FAIL n3\nPASS 3 nodes n[0-2]\n")
    skipped = text(nodes[0], Node("s", verdict=Status.SKIP))
    assert (
        skipped.startswith("PASS 2 nodes (ssh): 1 pass, 1 skip")
        and "neither passing nor failing: s" in skipped
    )


def test_one_machine_by_three_names_is_no_two():
    shown = text(
        *(nodes := [Node(host, boot_id="b", verdict=Status.PASS) for host in "abc"]), oddities=judge(nodes)
    )
    assert "a,b,c are one machine (same boot id): b" in shown and "twice" not in shown
