"""The recipes: their scripts do what docs/recipes/README.md says, and every option in them exists."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodedoctor.cli.arguments import parser
from nodedoctor.cli.compare import document_of
from nodedoctor.demo import folder as demo
from nodedoctor.expectations import expectations
from nodedoctor.report import prometheus

REPOSITORY = Path(__file__).parents[2]
RECIPES = REPOSITORY / "docs" / "recipes"
INSTALLED = "/usr/local/bin/nodedoctor"
SCRIPTS = sorted(path.relative_to(RECIPES) for path in RECIPES.rglob("*.sh"))
HANGING = REPOSITORY / "tests" / "nodes" / "h100-driver-hangs"

Said = subprocess.CompletedProcess[str]


def recording(name: str) -> Path:
    """A recorded node of the tests or of the demos."""
    own = REPOSITORY / "tests" / "nodes" / name
    return own if own.is_dir() else demo(name)


class Node:
    """A folder with the commands that scripts call: nodedoctor with a recording, an scontrol that notes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked = folder / "asked"
        self.mark = folder / "marks" / "refused"
        self.asked.touch()
        self.slurm()
        self.command("logger", f'echo "logger $*" >> {self.asked}')
        self.is_like(demo("healthy"))

    def command(self, name: str, line: str) -> None:
        (self.folder / name).write_text(f"#!/bin/sh\n{line}\n")
        (self.folder / name).chmod(0o755)

    def is_like(self, recording: Path) -> None:
        self.command(
            "nodedoctor", f'cd {REPOSITORY} && exec {sys.executable} -m nodedoctor --replay {recording} "$@"'
        )

    def ends_with(self, code: int) -> None:
        self.command("nodedoctor", f"exit {code}")

    def slurm(self, state: str = "IDLE", reason: str = "", comment: str = "") -> None:
        """What the controller knows of the node."""
        told = f"NodeName=gpu-1 Arch=x86_64 State={state} ThreadsPerCore=1"
        told += f" Comment={comment}" if comment else ""
        told += f" Reason={reason} [root@2026-01-02T03:04:05]" if reason else ""
        self.command(
            "scontrol", f'echo "scontrol $*" >> {self.asked}\ncase "$*" in *show*) echo "{told}" ;; esac'
        )

    def run(self, recipe: str) -> Said:
        script = (RECIPES / recipe).read_text()
        return self.run_text(script)

    def run_text(self, script: str) -> Said:
        changed = script.replace(INSTALLED, str(self.folder / "nodedoctor"))
        assert changed != script
        changed = changed.replace("/run/nodedoctor/refused", str(self.mark))
        self.command("script", changed.removeprefix("#!/bin/sh\n"))
        env = {"PATH": f"{self.folder}:/usr/bin:/bin", "SLURMD_NODENAME": "gpu-1"}
        self.asked.write_text("")
        argv = [self.folder / "script"]
        return subprocess.run(argv, capture_output=True, text=True, env=env, timeout=120)

    def changes(self) -> list[str]:
        """What was changed in Slurm."""
        return [line for line in self.asked.read_text().splitlines() if line.startswith("scontrol update")]


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


DRAIN = (
    "scontrol update NodeName=gpu-1 State=DRAIN"
    " Reason=nodedoctor: provider: GPU 3 lost 2 NVLinks; request a replacement"
)
NAMED = DRAIN.replace(" State=DRAIN", "")
BRAKED = (
    "nodedoctor: provider: GPU 3: hardware power brake slowdown: the power supply or chassis throttles the"
    " GPU; request a replacement"
)
DRAIN_BRAKED = f"scontrol update NodeName=gpu-1 State=DRAIN Reason={BRAKED}"
COMMENT_BRAKED = f"scontrol update NodeName=gpu-1 Comment={BRAKED}"
RESUME = "scontrol update NodeName=gpu-1 State=RESUME"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("health", "state", "reason", "changes"),
    [
        ("healthy", "IDLE", "", []),
        ("healthy", "IDLE+DRAIN", "nodedoctor: FAIL nvlink.links gpu:3: 2 down", [RESUME]),
        ("healthy", "MIXED+DRAIN", "nodedoctor: FAIL x", [RESUME]),
        ("healthy", "IDLE+DRAIN", "the door is open", []),
        ("healthy", "IDLE+DRAIN", "see nodedoctor: later", []),
        ("healthy", "DOWN", "nodedoctor: FAIL x", []),
        ("nvlinks-down", "IDLE", "", [DRAIN]),
        ("nvlinks-down", "ALLOCATED", "", [DRAIN]),
        ("nvlinks-down", "IDLE+DRAIN", "the door is open", []),
        ("nvlinks-down", "IDLE+DRAIN", "Prolog error", [NAMED]),
        ("healthy", "IDLE+DRAIN", "Prolog error", []),
        ("nvlinks-down", "IDLE+DRAIN", "nodedoctor: FAIL x", []),
        ("raylet-1024-files", "IDLE", "", []),
        ("raylet-1024-files", "IDLE+DRAIN", "nodedoctor: provider: x", [RESUME]),
        ("h100-braked", "IDLE", "", [DRAIN_BRAKED]),
        ("h100-braked", "ALLOCATED", "", [COMMENT_BRAKED]),
        ("h100-braked", "MIXED", "", [COMMENT_BRAKED]),
        ("h100-braked", "MIXED+DRAIN", "the door is open", []),
        ("log-denied", "IDLE+DRAIN", "nodedoctor: provider: x", []),
    ],
)
def test_the_health_check_drains_and_resumes_what_it_drained(
    node: Node, health: str, state: str, reason: str, changes: list[str]
):
    node.is_like(recording(health))
    node.slurm(state, reason)
    done = node.run("slurm/healthcheck.sh")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert node.changes() == changes


@pytest.mark.sampled(6)
@pytest.mark.parametrize("code", [3, 64, 70, 74, 127, 137])
@pytest.mark.parametrize("state", ["IDLE", "IDLE+DRAIN"])
def test_no_verdict_changes_nothing_in_slurm(node: Node, code: int, state: str):
    node.ends_with(code)
    node.slurm(state, "nodedoctor: FAIL x" if "DRAIN" in state else "")
    assert node.run("slurm/healthcheck.sh").returncode == 0
    assert node.changes() == [] and f"logger -t nodedoctor -- exit code {code}" in node.asked.read_text()
    assert node.run("slurm/prolog.sh").returncode == 0
    assert node.changes() == []


def test_a_controller_that_does_not_answer_is_logged(node: Node):
    node.is_like(demo("nvlinks-down"))
    node.command("scontrol", "echo 'Unable to contact slurm controller' >&2; exit 1")
    assert node.run("slurm/healthcheck.sh").returncode == 0
    assert "Unable to contact slurm controller: provider: GPU 3 lost 2 NVLinks" in node.asked.read_text()


def test_the_prolog_refuses_a_job_on_a_sick_node(node: Node):
    assert node.run("slurm/prolog.sh").returncode == 0 and node.asked.read_text() == ""
    node.is_like(demo("nvlinks-down"))
    done = node.run("slurm/prolog.sh")
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout == "nodedoctor: provider: GPU 3 lost 2 NVLinks; request a replacement\n"
    asked = node.asked.read_text()
    assert "logger -t nodedoctor -- refused a job: provider: GPU 3 lost 2 NVLinks" in asked
    assert "scontrol" not in asked, "Slurm's commands have no place in a prolog"


@pytest.mark.slow
def test_the_plug_in_of_node_problem_detector_keeps_its_protocol(node: Node):
    recipe, config = "node-problem-detector/nodedoctor.sh", _npd()
    length = config["pluginConfig"]["max_output_length"]
    for recording, code, opening in (
        (demo("healthy"), 0, "PASS: new jobs may start"),
        (REPOSITORY / "tests" / "nodes" / "h100-braked", 0, "provider: GPU 3"),
        (demo("nvlinks-down"), 1, "provider: GPU 3 lost 2 NVLinks; request a replacement"),
        (HANGING, 1, "administrator: the driver hangs"),
    ):
        node.is_like(recording)
        done = node.run(recipe)
        assert (done.returncode, done.stderr) == (code, "") and done.stdout.startswith(opening)
        assert done.stdout.count("\n") == 1 and len(done.stdout) <= length + 1
    for code in (3, 64, 127):
        node.ends_with(code)
        assert node.run(recipe).returncode == 2


def test_the_configuration_of_node_problem_detector_is_one():
    config = _npd()
    assert config["plugin"] == "custom" and config["source"]
    (condition,), (rule,) = config["conditions"], config["rules"]
    assert set(condition) == {"type", "reason", "message"}
    assert rule["condition"] == condition["type"] and rule["type"] == "permanent"
    deadline = _options("node-problem-detector/nodedoctor.sh")[0].deadline
    assert deadline + 5 < int(config["pluginConfig"]["timeout"].removesuffix("s"))


def test_a_health_check_ends_before_slurm_ends_it():
    assert _options("slurm/healthcheck.sh")[0].deadline + 5 < 60
    assert _options("slurm/prolog.sh")[0].deadline < 10


@pytest.mark.slow
def test_a_drain_of_the_prolog_is_ended_when_its_cause_is_gone_and_nobody_elses(node: Node):
    node.slurm("IDLE+DRAIN", "Prolog error")
    node.is_like(demo("nvlinks-down"))
    assert node.run("slurm/prolog.sh").returncode == 1 and node.mark.exists()
    node.is_like(demo("healthy"))  # the fault cleared before a health check looked
    node.run("slurm/healthcheck.sh")
    assert node.changes() == [RESUME] and not node.mark.exists()
    node.run("slurm/healthcheck.sh")
    assert node.changes() == [], "another prolog failed"
    node.is_like(demo("nvlinks-down"))
    node.run("slurm/prolog.sh")
    node.is_like(demo("healthy"))
    assert node.run("slurm/prolog.sh").returncode == 0 and not node.mark.exists()


@pytest.mark.slow
def test_a_comment_of_our_own_is_emptied_and_written_once(node: Node):
    node.slurm("MIXED", comment="nodedoctor: provider: old")
    node.run("slurm/healthcheck.sh")
    assert node.changes() == ["scontrol update NodeName=gpu-1 Comment="]
    node.slurm("MIXED", comment="of the administrator")
    node.run("slurm/healthcheck.sh")
    assert node.changes() == []
    node.slurm("MIXED", comment=BRAKED)
    node.is_like(recording("h100-braked"))
    node.run("slurm/healthcheck.sh")
    assert node.changes() == []


def test_every_recipe_that_decides_asks_the_gate():
    for recipe in ("slurm/healthcheck.sh", "slurm/prolog.sh", "node-problem-detector/nodedoctor.sh"):
        assert all(options.gate for options in _options(recipe)), recipe
    for recipe in (
        "provisioning/cloud-config.yaml",
        "ci/github-node-health.yaml",
        "ci/gitlab-node-health.yaml",
    ):
        assert any(options.gate for options in _options(recipe)), recipe
    (container,) = yaml.safe_load((RECIPES / "kubernetes" / "job.yaml").read_text())["spec"]["template"][
        "spec"
    ]["containers"]
    assert parser().parse_args(container["args"]).gate


def _npd() -> Any:
    return json.loads((RECIPES / "node-problem-detector" / "nodedoctor.json").read_text())


def _accept(node: Node, expect: str) -> tuple[Said, Path]:
    """Run the script of the cloud-config with its folders moved and no pauses."""
    files = {file["path"]: file["content"] for file in _cloud()["write_files"]}
    (node.folder / "node.expect").write_text(expect)
    script = files["/usr/local/sbin/accept-node"]
    for old, new in (
        ("/etc/nodedoctor/node.expect", str(node.folder / "node.expect")),
        ("/var/lib/nodedoctor", str(node.folder / "reports")),
        ("pause=30", "pause=0"),
    ):
        assert old in script
        script = script.replace(old, new)
    return node.run_text(script), node.folder / "reports"


def _cloud() -> Any:
    text = (RECIPES / "provisioning" / "cloud-config.yaml").read_text()
    assert text.startswith("#cloud-config\n")
    return yaml.safe_load(text)


@pytest.mark.slow
def test_a_node_is_accepted_when_it_has_what_it_must_have(node: Node):
    done, reports = _accept(node, "gpus=8\ngpu=H100\nnvlinks=18\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert json.loads((reports / "accept.json").read_text())["verdict"] == "pass"
    assert (reports / "accept.html").read_text().lstrip().lower().startswith("<!doctype html>")
    assert _accept(node, "gpus=16\n")[0].returncode == 2
    assert _accept(node, "gpsu=8\n")[0].returncode == 64
    node.ends_with(3)
    assert _accept(node, "gpus=8\n")[0].returncode == 3


def test_a_node_that_needs_a_moment_is_asked_again(node: Node):
    count = node.folder / "count"
    node.command("nodedoctor", f"echo x >> {count}; [ $(wc -l < {count}) -ge 3 ] || exit 2; exit 0")
    assert _accept(node, "gpus=8\n")[0].returncode == 0
    assert count.read_text() == "x\nx\nx\n"


def test_the_expectations_of_the_cloud_config_are_known(tmp_path: Path):
    files = {file["path"]: file["content"] for file in _cloud()["write_files"]}
    path = tmp_path / "node.expect"
    path.write_text(files["/etc/nodedoctor/node.expect"])
    assert expectations([str(path)]) == {"gpus": "8", "gpu": "H100", "nvlinks": "18"}


def _commands(recipe: str) -> list[list[str]]:
    """Every call of nodedoctor in a recipe, as words; redirections and quotes aside."""
    text = (RECIPES / recipe).read_text().replace("\\\n", " ")
    text = re.sub(r"^\s*#.*$", "", text, flags=re.MULTILINE)
    calls = re.findall(r'(?:"\$nodedoctor"|/bin/nodedoctor)((?: +[^\s;)>|]+)+)', text)
    return [shlex.split(call.replace("$reports", "/tmp")) for call in calls]


def _options(recipe: str) -> list[Any]:
    return [parser().parse_args(words) for words in _commands(recipe)]


@pytest.mark.parametrize(
    ("recipe", "calls"),
    [
        ("slurm/healthcheck.sh", 1),
        ("slurm/prolog.sh", 1),
        ("node-problem-detector/nodedoctor.sh", 1),
        ("provisioning/cloud-config.yaml", 1),
        ("prometheus/nodedoctor-metrics.service", 1),
        ("ci/github-node-health.yaml", 1),
        ("ci/gitlab-node-health.yaml", 1),
    ],
)
def test_every_option_in_a_recipe_exists(recipe: str, calls: int):
    found = [words for words in _commands(recipe) if words[0].startswith("-")]
    assert len(found) == calls
    for words in found:
        parser().parse_args(words)


def test_every_file_is_explained_and_every_file_explained_is_there():
    readme = (RECIPES / "README.md").read_text()
    files = {str(path.relative_to(RECIPES)) for path in RECIPES.rglob("*") if path.is_file()} - {"README.md"}
    folders = "acceptance|blackbox|kubernetes|ray|slurm|node-problem-detector|provisioning|prometheus|ci"
    named = set(re.findall(rf"`((?:{folders})/[\w.-]+)`", readme))
    assert files - {"prometheus/nodedoctor-metrics.timer"} == named


def test_workflows_are_yaml_that_keeps_the_reports():
    github = yaml.safe_load((RECIPES / "ci" / "github-node-health.yaml").read_text())
    steps = github["jobs"]["nodedoctor"]["steps"]
    kept = next(step for step in steps if "upload-artifact" in step.get("uses", ""))
    assert kept["if"] == "always()" and "node.xml" in kept["with"]["path"].split()
    gitlab = yaml.safe_load((RECIPES / "ci" / "gitlab-node-health.yaml").read_text())
    assert gitlab["node-health"]["artifacts"]["reports"] == {"junit": "node.xml"}


@pytest.mark.parametrize("script", SCRIPTS, ids=str)
def test_scripts_are_portable(script: Path):
    path = RECIPES / script
    assert os.access(path, os.X_OK)
    done = subprocess.run(["sh", "-n", path], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    if shellcheck := shutil.which("shellcheck"):
        done = subprocess.run([shellcheck, path], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout


def test_units_are_taken_by_systemd(tmp_path: Path):
    if not shutil.which("systemd-analyze"):
        pytest.skip("no systemd-analyze here")
    for name in ("nodedoctor-metrics.service", "nodedoctor-metrics.timer"):
        unit = (RECIPES / "prometheus" / name).read_text().replace(INSTALLED, sys.executable)
        (tmp_path / name).write_text(unit)
    done = subprocess.run(
        ["systemd-analyze", "verify", *tmp_path.glob("nodedoctor-metrics.*")], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


def _series(name: str, recording: Path, minutes: int) -> list[dict[str, str]]:
    """What Prometheus has of a node for so long, when it looked at that node once at the epoch."""
    found = []
    for line in prometheus.render(document_of(recording)).splitlines():
        if not line.startswith("#"):
            metric, value = line.rsplit(" ", 1)
            bare, _, labels = metric.partition("{")
            own = f'{{instance="{name}",job="node"{"," if labels else "}"}{labels}'
            value = "0" if bare == "nodedoctor_last_run_timestamp_seconds" else value
            found.append({"series": bare + own, "values": f"{value}x{minutes}"})
    return found


def _alerts(folder: Path, nodes: dict[str, Path], minutes: int) -> set[tuple[str, ...]]:
    """Alert, node and check of all that fires after so many minutes over what we write of these nodes."""
    rules = RECIPES / "prometheus" / "nodedoctor.rules.yaml"
    names = [
        rule["alert"] for group in yaml.safe_load(rules.read_text())["groups"] for rule in group["rules"]
    ]
    test = {
        "interval": "1m",
        "input_series": [row for name, path in nodes.items() for row in _series(name, path, minutes)],
        "alert_rule_test": [
            {"eval_time": f"{minutes}m", "alertname": name, "exp_alerts": []} for name in names
        ],
    }
    path = folder / "test.yaml"
    path.write_text(json.dumps({"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": [test]}))
    done = subprocess.run(["promtool", "test", "rules", path], capture_output=True, text=True, timeout=120)
    told = done.stdout + done.stderr
    fired = [dict(re.findall(r'(\w+)="([^"]*)"', labels)) for labels in re.findall(r"Labels:\{(.*)\}", told)]
    # promtool expected nothing, so it tells whatever fires and fails; it may not fail for another reason.
    assert (done.returncode != 0) == bool(fired), told
    return {tuple(labels.get(key, "") for key in ("alertname", "instance", "check")) for labels in fired}


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("promtool"), reason="no promtool here")
def test_the_rules_fire_on_what_we_write(tmp_path: Path):
    sick = {"gpu-1": demo("nvlinks-down"), "gpu-2": HANGING}
    fired = _alerts(tmp_path, sick, 15)
    assert ("NodeFailed", "gpu-1", "nvlink.links") in fired
    assert ("NodeFailed", "gpu-2", "driver.answers") in fired and ("NodeHangs", "gpu-2", "") in fired
    assert not [alert for alert, node, _ in fired if (alert, node) == ("NodeHangs", "gpu-1")]
    assert _alerts(tmp_path, {"gpu-1": demo("healthy")}, 15) == set()
    assert _alerts(tmp_path, {"gpu-1": demo("healthy")}, 30) == {("NodeNotLookedAt", "gpu-1", "")}
    unlike = {"gpu-1": demo("healthy"), "gpu-2": REPOSITORY / "tests" / "nodes" / "wsl2-rtx4090"}
    assert ("DriversDiffer", "", "") in _alerts(tmp_path, unlike, 1500)


def _action(rules: list[dict[str, Any]], code: int) -> str:
    """What a Job does with a pod whose container ended with a code: the first rule that fits decides."""
    for rule in rules:
        codes = rule.get("onExitCodes")
        if codes and codes["operator"] == "In" and code in codes["values"]:
            return str(rule["action"])
    return "Count"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "action"),
    [
        (
            "echo 'slurmstepd: error: *** JOB 9 ON n CANCELLED AT x DUE TO PREEMPTION ***'; exit 1",
            "Count",
        ),
        ("exit 10", "FailJob"),
        ("exit 0", None),
        ("echo 'srun: error: Node failure on n023'; exit 1", "FailJob"),
        ("echo 'ValueError: no such column'; exit 1", "FailJob"),
        ("exit 1", "FailJob"),
    ],
)
def test_a_training_job_of_kubernetes_does_as_the_decision_says(
    script: str, action: str | None, tmp_path: Path
):
    """The wrapper is run with sh and the rules are evaluated; no cluster takes part."""
    spec = yaml.safe_load((RECIPES / "kubernetes" / "training-job.yaml").read_text())["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    assert spec["template"]["spec"]["restartPolicy"] == "Never"
    rules = spec["podFailurePolicy"]["rules"]
    assert all(
        rule.get("onExitCodes", {}).get("containerName", "train") == container["name"] for rule in rules
    )
    name, *words = [str(tmp_path) if word == "/logs" else word for word in container["command"]]
    assert name == "nodedoctor"
    done = subprocess.run(
        [sys.executable, "-m", name, *words, "sh", "-c", script], capture_output=True, text=True, timeout=60
    )
    assert (_action(rules, done.returncode) if done.returncode else None) == action, done.stderr


def test_a_training_job_of_kubernetes_knows_every_code_of_a_decision():
    spec = yaml.safe_load((RECIPES / "kubernetes" / "training-job.yaml").read_text())["spec"]
    rules = spec["podFailurePolicy"]["rules"]
    assert {code: _action(rules, code) for code in (10, 11, 12, 13)} == {
        10: "Count",
        11: "FailJob",
        12: "FailJob",
        13: "FailJob",
    }
    assert rules[0] == {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}
