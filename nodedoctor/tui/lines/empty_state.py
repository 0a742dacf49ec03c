"""The pages of screens that have nothing to show yet: what they are for, and the ways to fill them."""

from __future__ import annotations

from nodedoctor.tui.theme import LABEL, Para

_Hints = tuple[tuple[str, str, str], ...]
"""A key or `$`, what to type, and what comes of it."""

_TRIAGE: _Hints = (
    ("o", "", "open a log, a flight-recorder dump, or a folder of them"),
    ("$", "nodedoctor triage logs/", "the same from the shell"),
    ("$", "nodedoctor run -- COMMAND", "start a job; a hang keeps every stack"),
    ("$", "nodedoctor watch --job PID", "watch a job that runs already"),
)
_COMPARE: _Hints = (
    ("d", "", "compare with a saved report (.json) or a recorded node (.zip, folder)"),
    ("s", "", "save what this node is now, to compare with later"),
    ("$", "nodedoctor --record now.zip", "the same from the shell"),
)
_FLEET: _Hints = (
    ("$", "nodedoctor fleet --ssh gpu-[001-128]", "ask nodes over ssh"),
    ("$", "nodedoctor fleet --slurm", "the nodes of this Slurm job"),
    ("$", "nodedoctor fleet --ray", "the nodes of this Ray cluster"),
    ("$", "nodedoctor fleet --reports DIR", "reports that were saved"),
)
_LIVE: _Hints = (("$", "nodedoctor watch", "on a node with GPUs: load, clocks, heat, the kernel log"),)
_PAGES = {
    "live": ("What each GPU does, every second", _LIVE),
    "triage": ("Why a job died or hangs, which rank and which node", _TRIAGE),
    "compare": ("What has changed on this node", _COMPARE),
    "fleet": ("Many nodes side by side: which ones differ", _FLEET),
}


def page(mode: str) -> list[Para]:
    """The page of a screen before anything is open on it."""
    title, hints = _PAGES[mode]
    wide = max(len(command) for _, command, _ in hints)
    paras = [Para(title, style=LABEL), Para()]
    for key, command, text in hints:
        line = f"{command:<{wide}}  {text}" if command else text
        paras.append(Para(line, f"  {key}  ", lead_style="bold cyan"))
    return paras
