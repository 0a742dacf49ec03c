"""What people copy: whole commands that a shell can read, quoted, and nothing drastic among them."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from examples import examples
from fixes import REPOSITORY, checks, every_fix, folders, of_rows, reports, sources
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded import judged

from nodedoctor.cli.arguments import parser as diagnosis_parser
from nodedoctor.cli.completion.vocabulary import vocabulary
from nodedoctor.model import Fix, Status, Step
from nodedoctor.spelling import COMMANDS
from nodedoctor.steps import as_steps, drastic, line, resets, without_entry, word

MAKERS = ("steps.py", "model.py", "reading.py")
BUILDERS = ("look", "keep", "repair", "last_resort", "line")
_PLACEHOLDER = re.compile(
    r"\.\.\.|<[a-z_ -]+>|\{[a-z_]*\}"
    r"|(?<![\w$/.=:-])(?:PID|XID|GPU|HCA|INDEX|BRIDGE|CONTAINER|NAME|HOST|IMAGE|PATH|FOLDER|FILE|DEVICE|PORT|N)(?![\w=])"
    r"|\b[A-Z]+_(?:ADDR|PORT|FOLDER|NAME|BAD)\b"
)


def every_step() -> list[tuple[str, Step]]:
    return [(where, step) for where, fix in every_fix().items() for step in fix.plan]


def test_there_are_many_fixes_and_steps_of_every_role():
    assert len(every_fix()) > 200
    assert {step.role for _, step in every_step()} == {"look", "keep", "repair", "last-resort", "verify"}


@pytest.mark.slow
def test_every_command_is_one_line_that_bash_reads():
    script = []
    for where, step in every_step():
        assert step.command and step.command == step.command.strip() and step.command.isprintable(), where
        shlex.split(step.command)
        script.append(step.command)
    for command in sorted(set(script)):
        done = subprocess.run(["bash", "-n"], input=command, capture_output=True, text=True, timeout=20)
        assert done.returncode == 0 and not done.stderr, (command, done.stderr)


def test_no_command_has_a_placeholder_or_a_comment_or_is_two():
    for where, step in every_step():
        bare = _unquoted(step.command)
        assert not _PLACEHOLDER.search(bare), (where, step.command)
        assert "#" not in bare, (where, step.command)
        assert not re.search(r";|&&|(?<!\|)\|\|", bare), (where, step.command)


def test_what_is_drastic_is_a_last_resort_and_says_when_and_what_it_ends():
    for where, step in every_step():
        if step.role != "last-resort":
            assert not drastic(step.command), (where, step.command)
        else:
            assert step.when and step.disturbs, (where, step.command)


def test_commands_are_the_look_and_repair_steps_and_never_a_last_resort():
    for where, fix in every_fix().items():
        assert list(fix.commands) == [s.command for s in fix.steps if s.role in ("look", "repair")], where
        assert not any(map(drastic, fix.commands)), where


def test_a_repair_says_what_it_disturbs():
    for where, fix in every_fix().items():
        for step in fix.plan:
            assert (
                step.disturbs or step.role != "repair" or fix.action in ("none", "config", "investigate")
            ), where


_ENDS_WORK = re.compile(r"systemctl (?:restart|stop|enable --now) nvidia-(?:fabric|imex)|--gpu-reset|setpci")


def test_a_repair_that_may_end_the_work_of_others_has_a_condition():
    seen = [(where, step) for where, step in every_step() if _ENDS_WORK.search(step.command)]
    assert len(seen) > 20
    for where, step in seen:
        assert step.role == "verify" or (step.when and step.disturbs), (where, step.command)


def lacking(fix: Fix | None) -> str:
    """What a fix has not: a first command, or one that shows whether it worked."""
    steps = fix.plan if fix else ()
    if not any(step.role in ("look", "repair") for step in steps):
        return "nothing to type first"
    return "" if any(step.role == "verify" for step in steps) else "nothing that verifies"


def test_all_that_is_wrong_on_a_recorded_node_has_a_first_command_and_one_that_verifies():
    seen = [
        (f"{folder.name}: {result.check}@{finding.subject}", lacking(finding.fix))
        for folder in folders().values()
        for result in judged(folder, preview=True).results
        for finding in result.findings
        if finding.status in (Status.FAIL, Status.WARN)
    ]
    assert len(seen) > 100 and [one for one in seen if one[1]] == []


def test_every_row_has_a_first_command_and_one_that_verifies_where_it_repairs():
    found = [(where, fix, lacking(fix)) for where, fix in of_rows()]
    bare = [(where, what) for where, fix, what in found if what and (fix.action != "none" or "first" in what)]
    assert len(found) > 250 and bare == []


def test_a_reset_names_its_gpu():
    named = [step.command for _, step in every_step() if resets(step.command)]
    assert named and all(" -i " in command for command in named)


def test_on_a_rented_machine_and_in_a_container_no_reset_comes_first():
    for name, report in reports().items():
        rented = report.node.get("form") in ("vm", "wsl2") or report.node.get("cloud")
        if rented or report.node.get("container"):
            for result in report.results:
                for finding in result.findings:
                    steps = finding.fix.steps if finding.fix else ()
                    first = [s for s in steps if resets(s.command) or "modprobe -r" in s.command]
                    assert all(s.role == "last-resort" for s in first), (name, result.check)


def test_every_nodedoctor_command_is_one():
    for where, step in every_step():
        words = shlex.split(step.command)
        words = words[1:] if words[0] == "sudo" else words
        if words[0] == "nodedoctor":
            _accepted(words[1:], where)


@pytest.mark.slow
def test_every_nodedoctor_command_in_the_source_is_one():
    for path, text in _texts():
        ours = {"checks", "knowledge", "lint", "facts"} & set(path.parts) and path.suffix == ".py"
        if ours and re.match("(?:sudo )?nodedoctor [a-z-]", text) and text[-1].isalnum():
            _accepted(text.replace("sudo ", "").split()[1:], f"{path}: {text}")


@pytest.mark.slow
def test_every_nodedoctor_command_in_any_text_of_ours_is_one():
    seen = 0
    for path, text in _texts():
        for quoted in re.findall(r"`(?:sudo )?nodedoctor ([^`]+)`", text):
            if not re.search(r"[A-Z]{3,}|[{|]", quoted):
                _accepted(shlex.split(quoted), f"{path}: {quoted}")
                seen += 1
    assert seen > 5


@pytest.mark.slow
def test_templates_are_literals_of_ours():
    """A template made of what a node says would not be quoted."""
    for path in sources():
        for node in _nodes(path):
            if not isinstance(node, ast.Call):
                continue
            if getattr(node.func, "id", "") in BUILDERS and node.args:
                fine = isinstance(node.args[0], ast.Constant | ast.Name)
                assert fine, f"{path}:{node.lineno}: {ast.unparse(node)}"
            made = getattr(node.func, "id", "") == "Step" and not {"fleet", "triage"} & set(
                path.parts
            )  # others
            assert not made or path.name in MAKERS, f"{path}:{node.lineno}"


@pytest.mark.slow
def test_every_template_keeps_the_laws_whatever_node_it_is_for():
    templates = list(_templates())
    assert len(templates) > 150
    for where, role, template in templates:
        bare = _unquoted(template)
        assert bare.count("{}") == template.count("{}"), where  # a place inside quotes would not be quoted
        assert "#" not in bare and not _PLACEHOLDER.search(bare.replace("{}", "x")), where
        assert not re.search(r";|&&|\|\|", bare), where
        assert role == "last_resort" or not drastic(template.replace("{}", "-i 3")), where
    script = "\n".join(sorted({template.replace("{}", "x") for _, _, template in templates}))
    done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, timeout=20)
    assert done.returncode == 0 and not done.stderr, done.stderr


def _templates() -> Iterator[tuple[str, str, str]]:
    for path in sources():
        for node in _nodes(path):
            name = getattr(node.func, "id", "") if isinstance(node, ast.Call) else ""
            if isinstance(node, ast.Call) and name in (*BUILDERS, "looks"):
                for argument in node.args if name == "looks" else node.args[:1]:
                    if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                        yield f"{path}:{node.lineno}: {argument.value}", name, argument.value


NASTY = st.one_of(
    st.text(max_size=30),
    st.lists(
        st.sampled_from(
            ["$(touch X)", "`id`", "'", '"', "\n", ";", "\\", " ", "\x1b", "é", "\u202e", "!", "-"]
        ),
        max_size=6,
    ).map("".join),
).map(lambda text: text.replace("\x00", ""))


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(NASTY, min_size=1, max_size=4))
def test_values_reach_the_command_as_they_are(values: list[str]):
    values = [value.encode("utf-8", "replace").decode() for value in values]
    told = line("printf '%s\\0' {}", values)
    assert told.isprintable()
    done = subprocess.run(
        ["bash", "-c", told],
        capture_output=True,
        timeout=20,
        env={"LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"},
    )
    assert done.stdout.decode().split("\0")[:-1] == values


def test_places_and_values_must_match():
    with pytest.raises(ValueError, match="places"):
        line("id {}")
    assert word("$(touch X)") == "'$(touch X)'" and word("a\nb") == r"$'a\x0ab'"


@pytest.mark.parametrize(
    "command",
    [
        "sudo reboot",
        "sudo systemctl reboot",
        "sudo poweroff",
        "sudo shutdown -r now",
        "echo w | sudo tee /proc/sysrq-trigger",
        "ray stop",
        "ray stop --force",
        "sudo nvidia-smi --gpu-reset",
        "sudo nvidia-smi -r",
        "sudo modprobe -r nvidia_uvm nvidia",
        "sudo rmmod nvidia",
        "sudo systemctl stop slurmd",
        "sudo systemctl restart docker",
        "docker restart trainer",
        "sudo kill -9 4242",
        "sudo pkill python",
        "ipmitool chassis power cycle",
    ],
)
def test_what_ends_the_work_of_others_is_known_by_what_it_says(command: str):
    assert drastic(command)


@pytest.mark.parametrize(
    "command",
    [
        "sudo nvidia-smi --gpu-reset -i 3",
        "nvidia-smi topo -p2p r",
        "sudo modprobe nvidia_uvm",
        "sudo systemctl enable --now nvidia-fabricmanager",
        "systemctl status docker",
        "sudo lspci -s 0000:3a:00.0 -vv",
        "pip install ray==2.51.1",
    ],
)
def test_what_ends_nothing_is_not_drastic(command: str):
    assert not drastic(command)


def test_commands_of_an_older_document_are_read_with_what_is_drastic_apart():
    roles = [step.role for step in as_steps(("nvidia-smi -q", "sudo reboot", "sudo nvidia-smi --gpu-reset"))]
    assert roles == ["repair", "last-resort", "last-resort"]
    told = Fix("x", as_steps(("nvidia-smi -q", "sudo reboot")))
    assert told.commands == ("nvidia-smi -q",)


def _unquoted(command: str) -> str:
    """What a shell reads as its own language: the command without its quoted parts."""
    return re.sub(r"\$'(?:\\.|[^'\\])*'|'[^']*'|\"'\"", " ", command)


def _accepted(words: list[str], where: str) -> None:
    assert not (unknown := _unknown(tuple(words))), (where, unknown)


@cache
def _unknown(words: tuple[str, ...]) -> set[str]:
    """What the command line does not know of these words; the same command stands in many fixes."""
    if words and words[0] in COMMANDS:
        return {word for word in words[1:] if word.startswith("-")} - _flags()[words[0]]
    told = _parser().parse_args(words)
    return set(told.checks) - {name for check in checks() for name in (check, check.partition(".")[0])}


_parser = cache(diagnosis_parser)


@cache
def _flags() -> dict[str, set[str]]:
    return {
        command.name: {flag for option in command.options for flag in option.flags}
        for command in vocabulary().commands
    }


@cache
def _nodes(path: Path) -> tuple[ast.Call | ast.Constant, ...]:
    """The calls and constants of a source file, parsed once for all tests."""
    found = ast.walk(ast.parse(path.read_text()))
    return tuple(node for node in found if isinstance(node, ast.Call | ast.Constant))


@cache
def _texts() -> tuple[tuple[Path, str], ...]:
    return tuple(_read_texts())


def _read_texts() -> Iterator[tuple[Path, str]]:
    for path in sources():
        for node in _nodes(path):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield path, node.value
    for path in sorted((REPOSITORY / "nodedoctor" / "knowledge").rglob("*.json")):
        yield path, path.read_text()


@pytest.mark.slow
def test_no_fix_in_the_source_is_without_a_command_unless_there_is_nothing_to_repair():
    bare = [
        f"{path}:{node.lineno}"
        for path in sources()
        if not {"triage", "report", "fleet"} & set(path.parts)
        for node in _nodes(path)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Fix" and _without_steps(node)
    ]
    assert bare == []


def _without_steps(call: ast.Call) -> bool:
    named = {one.arg: one.value for one in call.keywords}
    steps = call.args[1] if len(call.args) > 1 else named.get("steps")
    action = call.args[2] if len(call.args) > 2 else named.get("action")
    empty = steps is None or (isinstance(steps, ast.Tuple) and not steps.elts)
    return empty and not (isinstance(action, ast.Constant) and action.value == "none")


@pytest.mark.parametrize("variable", ["LD_LIBRARY_PATH", "LD_PRELOAD"])
@pytest.mark.parametrize("entry", ["/opt/nccl/lib", "/opt/it's/$(id)"])
def test_one_entry_leaves_a_list_and_the_others_stay(variable: str, entry: str) -> None:
    # In another variable: the loader itself reads this one.
    command = without_entry(variable, entry).command.replace(variable, "LIST")
    before = ":".join(("/a", entry, "/b", f"{entry}/", "/c"))
    script = f'LIST={shlex.quote(before)}; {command}; printf %s "$LIST"'
    shown = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert shown.stdout == "/a:/b:/c"
