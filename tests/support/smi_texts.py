"""Outputs of nvidia-smi in the forms of several drivers, made for the tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

H100 = "NVIDIA H100 80GB HBM3"


def xml(
    gpus: Sequence[str], driver: str = "580.95.05", cuda: str = "13.0", attached: int | None = None
) -> str:
    """A document of `nvidia-smi -q -x`."""
    count = len(gpus) if attached is None else attached
    head = f"<driver_version>{driver}</driver_version><cuda_version>{cuda}</cuda_version>"
    doctype = '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v13.dtd">\n'
    body = f"{head}<attached_gpus>{count}</attached_gpus>{''.join(gpus)}"
    return f"{doctype}<nvidia_smi_log>{body}</nvidia_smi_log>\n"


def xml_gpu(bus: str = "00000000:18:00.0", inside: str = "", **texts: str) -> str:
    """One GPU; keywords are elements, `inside` is more XML."""
    told = {"product_name": H100, "uuid": f"GPU-{bus}", "minor_number": "0", **texts}
    return f'<gpu id="{bus}">{"".join(f"<{k}>{v}</{k}>" for k, v in told.items())}{inside}</gpu>\n'


def q(gpus: Sequence[str], width: int = 34, driver: str = "550.90.07", attached: int | None = None) -> str:
    """The text of `nvidia-smi -q`; its key column is 34 characters wide, 51 from R610 on."""
    count = len(gpus) if attached is None else attached
    lines = {"Driver Version": driver, "CUDA Version": "12.4"}
    head = "".join(f"{key:<{width + 8}}: {value}\n" for key, value in lines.items())
    attached_gpus = f"\n{'Attached GPUs':<{width + 8}}: {count}\n"
    return f"\n==============NVSMI LOG==============\n\n{head}{attached_gpus}{''.join(gpus)}"


def q_gpu(bus: str, tree: Mapping[str, object], width: int = 34) -> str:
    """One GPU; a mapping below a key is a section."""
    return f"GPU {bus}\n{_lines(tree, 1, width)}\n"


def _lines(tree: Mapping[str, object], depth: int, width: int) -> str:
    made = []
    for key, value in tree.items():
        indented = "    " * depth + key
        if isinstance(value, Mapping):
            made.append(f"{indented}\n{_lines(value, depth + 1, width)}")
        else:
            made.append(f"{indented:<{width + 8}}: {value}\n")
    return "".join(made)


def table(*rows: str, head: str = "Driver Version: 550.90.07      CUDA Version: 12.4") -> str:
    """The table of plain nvidia-smi around the rows of its GPUs."""
    line = "+-----------------------------------------+------------------------+----------------------+\n"
    top = f"Mon Jan 20 10:18:26 2025\n{line}| NVIDIA-SMI 550.90.07              {head}     |\n{line}"
    return top + "".join(row + line for row in rows)


def row(
    index: int, name: str = H100, bus: str = "00000000:19:00.0", persistence: str = "On", **use: str
) -> str:
    """The three lines of a GPU."""
    told = {"fan": "N/A", "temp": "27C", "perf": "P0", "draw": "72W", "cap": "700W", "memory": "1MiB"}
    told |= {"total": "81559MiB", "load": "0%", "compute": "Default", "ecc": "0", "mig": "Disabled", **use}
    return (
        f"|{index:>4}  {name:<28}{persistence:>5}  |   {bus} Off | {told['ecc']:>20} |\n"
        f"| {told['fan']:<4}  {told['temp']:>4}    {told['perf']}{told['draw']:>14} / {told['cap']:>5} "
        f"|{told['memory']:>11} / {told['total']:>9} |{told['load']:>9}{told['compute']:>13} |\n"
        f"|                                         |                        |{told['mig']:>21} |\n"
    )
