"""What was typed and answered in a shell, judged: each sick answer as its kind, beside the healthy one."""

from __future__ import annotations

import pytest
import smi_texts

from nodedoctor.intake.judge import Reading, read
from nodedoctor.intake.outputs import NodeOutput, readable, snapshot_of
from nodedoctor.intake.split import split


def reading(text: str) -> Reading:
    return read(["-"], stdin=text.encode())


def alarms(text: str) -> list[str]:
    """What warns or fails in a paste of one node or none, in words; a verdict on a job, too."""
    result = reading(text)
    job = [f"job: {result.triage['headline']}"] if result.triage else []
    return job + [
        f"{finding['status']} {row['check']}@{finding['subject']}: {finding['summary']}"
        for node in result.nodes
        for row in node.report["results"]
        for finding in row["findings"]
        if finding["status"] in ("warn", "fail") or finding.get("reason") == "unparsable"
    ]


def fabric(state: str, *, count: int = 4, names: bool = False) -> str:
    """What `nvidia-smi -q | grep -A2 Fabric` leaves, with the lines of the GPUs' addresses or without."""
    status = "Success" if state == "Completed" else "N/A"
    return "".join(
        (f"GPU 00000000:{17 + number:02X}:00.0\n" if names else "")
        + f"    Fabric\n        State                             : {state}\n"
        f"        Status                            : {status}\n--\n"
        for number in range(count)
    )


@pytest.mark.parametrize("names", [True, False])
@pytest.mark.parametrize("count", [1, 2, 8])
def test_the_state_of_the_fabric_is_read_without_its_surroundings(count: int, names: bool):
    typed = "$ nvidia-smi -q | grep -A2 Fabric\n"
    assert alarms(typed + fabric("Completed", count=count, names=names)) == []
    sick = alarms(typed + fabric("In Progress", count=count, names=names))
    assert len(sick) == count
    assert all("fail fabric.state@gpu:" in line for line in sick)


@pytest.mark.parametrize("lines", range(1, 9))
def test_a_heading_of_nvidia_smis_table_alone_is_not_misread(lines: int):
    table = smi_texts.table(smi_texts.row(0)).splitlines(keepends=True)
    heading = [line for line in table if "NVIDIA-SMI" in line or "Driver Version" in line]
    assert heading, table
    text = "".join(table[: table.index(heading[0]) + lines])
    if "NVIDIA H100" not in text:
        read_pieces = readable([NodeOutput(piece, "paste") for piece in split(text).pieces])
        assert [item.piece.shape.probe for item in read_pieces] == [""]
    assert alarms(text) == []


@pytest.mark.parametrize("sign", ["$ ", "+ ", "root@gpu-1:~# "])
@pytest.mark.parametrize("program", ["./all_reduce -g 8", "torchrun train.py --lr=1e-3", "python -c 'a=1'"])
def test_variables_in_front_of_a_program_end_where_it_begins(sign: str, program: str):
    text = f"{sign}NCCL_DEBUG=VERSION NCCL_IB_HCA='mlx5_0, mlx5_1' {program}\n"
    assert alarms(text) == []
    outputs = [NodeOutput(piece, "paste") for piece in split(text).pieces]
    seen = snapshot_of(outputs, "").observations
    expected = "NCCL_DEBUG=VERSION\nNCCL_IB_HCA='mlx5_0, mlx5_1'\n"
    assert [observation.text for observation in seen.values()] in ([], [expected])
