"""What the README promises: its example runs, it names every subject, its exit codes are ours."""

import json
import re
from pathlib import Path

from test_plugins import nodedoctor, results

from nodedoctor.cli.console import Exit
from nodedoctor.engine.plugins import discover

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")


def test_the_example_check_runs(tmp_path):
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    (tmp_path / "site_memory.py").write_text(example)
    done = nodedoctor("--json", "--checks", str(tmp_path), "site")
    (finding,) = results(done)["site.memory"]["findings"]
    assert finding["status"] in ("pass", "warn")
    assert "GiB of memory" in finding["summary"]


def test_every_subject_is_named():
    subjects = {check.subject for check in discover().checks.values()}
    missing = [subject for subject in sorted(subjects) if f"`{subject}.*`" not in README]
    assert not missing


def test_every_exit_code_is_in_the_table():
    rows = re.findall(r"^\| ([\d, ]+) \|", README, re.MULTILINE)
    told = {int(number) for row in rows for number in row.split(",")}
    assert told == {int(code) for code in Exit}


def test_every_option_in_an_example_exists():
    helps = (
        nodedoctor(*words, "--help").stdout for words in ((), ("triage",), ("fleet",), ("arm",), ("run",))
    )
    known = set(re.findall(r"--[a-z-]+", "".join(helps)))
    lines = re.findall(r"^(?:\$ )?nodedoctor .*$", README, re.MULTILINE)
    used = {
        option
        for line in lines
        for option in re.findall(r"(?<= )--[a-z-]+", line.partition("#")[0].partition(" -- ")[0])
    }
    assert used
    assert used <= known | {"--keys"}


def test_the_report_in_the_readme_is_of_this_schema():
    assert "nodedoctor.report/1" in README
    assert json.loads(nodedoctor("--json", "doctor").stdout)["schema"] == "nodedoctor.report/1"


def test_the_printed_report_is_what_is_printed():
    (shown,) = re.findall(r"```\n\$ nodedoctor (demo .*?)\n(.*?)```", README, re.DOTALL)
    done = nodedoctor(*shown[0].split())
    assert re.sub(r"in \d+\.\d s", "", done.stdout) == re.sub(r"in \d+\.\d s", "", shown[1])
