"""Runbooks, post-mortems and forms quote lines of logs; mails and issues have one as evidence."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import judged

from nodedoctor.triage.job import examine_job

FAULTS = [
    "srun: error: b3: task 4: Out Of Memory",
    "NVRM: Xid (PCI:0000:5d:00): 79, GPU has fallen off the bus.",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.37 GiB.",
]
QUOTES = ["```\n{}\n```\n", "    {}\n", "> {}\n", "| `{}` | see below |\n|---|---|\n"]
RUNBOOK = """\
# When a training run stops

## What it looks like

{quote}
## What to do

1. Look for the rank that printed nothing.
2. Ask the owner of the run.

## Who is on call

See the calendar.
"""
FORM = """\
---
name: Broken run
about: Tell us about a run that ended
---
**What happened**

{quote}
**Versions**
- torch:
- driver:
"""
STEPS = "".join(f"step {n} loss {2 - n / 100}\n" for n in range(30))


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("quote", QUOTES)
@pytest.mark.parametrize("page", [RUNBOOK, FORM])
def test_a_page_is_no_log(page: str, quote: str, fault: str, tmp_path: Path) -> None:
    assert judged(tmp_path, page.format(quote=quote.format(fault))).verdict.outcome == "undetermined"


@pytest.mark.parametrize("fault", FAULTS)
def test_a_table_below_a_title_is_a_page(fault: str, tmp_path: Path) -> None:
    table = "# Faults and what they mean\n\n" + QUOTES[3].format(fault)
    assert judged(tmp_path, table).verdict.outcome == "undetermined"
    with_log = f"{table}\n```\n{STEPS}[rank2]: {FAULTS[2]}\n```\n"
    assert judged(tmp_path, with_log).verdict.outcome == "failure"


@pytest.mark.parametrize("page", [RUNBOOK, FORM])
def test_a_page_beside_logs_decides_nothing(page: str, tmp_path: Path) -> None:
    (tmp_path / "HELP.md").write_text(page.format(quote=QUOTES[0].format(FAULTS[0])))
    log = tmp_path / "job.log"
    log.write_text(STEPS)
    assert examine_job([str(tmp_path)]).verdict.outcome == "clean"
    log.write_text(f"{STEPS}[rank2]: {FAULTS[2]}\n")
    assert examine_job([str(tmp_path)]).verdict.cause == "peer_cuda_oom"


@pytest.mark.parametrize(
    "text",
    [
        "Our run died over night, any idea?\n\n```\n{log}```\n",
        "### Describe the bug\n\nIt stops.\n\n### Logs\n\n```\n{log}```\n\n### Environment\n\ntorch 2.6\n",
        "# it died again\n\n## log\n\n```\n{log}```\n\n## driver\n\n570\n",
        "# cat run.log\n{log}# tail dmesg\n# uptime\n",
        RUNBOOK.replace("See the calendar.\n", "{log}").format(quote="", log="{log}"),
    ],
)
def test_a_mail_or_an_issue_with_a_log_is_read(text: str, tmp_path: Path) -> None:
    log = f"{STEPS}[rank2]: {FAULTS[2]}\n"
    assert judged(tmp_path, text.format(log=log)).verdict.cause == "peer_cuda_oom"
