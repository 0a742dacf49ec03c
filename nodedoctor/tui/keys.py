"""The keys that work on every screen. Each screen and widget has its own beside what they do."""

from __future__ import annotations

from textual.binding import Binding

EVERYWHERE = (
    Binding("1", "open('checks')", "Checks", id="screen-checks"),
    Binding("2", "open('topology')", "Topology", id="screen-topology", tooltip="which nodes reach which"),
    Binding("3", "open('live')", "Live", id="screen-live", tooltip="load of GPUs, ports and host"),
    Binding("4", "open('triage')", "Triage", id="screen-triage", tooltip="why a job died"),
    Binding("5", "open('compare')", "Compare", id="screen-compare", tooltip="with a saved report"),
    Binding("6", "open('probes')", "Probes", id="screen-probes", tooltip="every command that was run"),
    Binding("7", "open('fleet')", "Fleet", id="screen-fleet", tooltip="many nodes side by side"),
    Binding("R", "rerun_all", "Re-run all checks", id="rerun-all", tooltip="every probe is asked afresh"),
    # With priority the next key waits for the prompt: a path begins with the key of the filter.
    Binding("s", "save", "Save snapshot", id="save", tooltip="a zip for --replay", priority=True),
    Binding("d", "compare", "Compare with a snapshot", id="compare", priority=True),
    Binding("escape", "home", "Back to the first screen", id="back"),
    Binding(
        "m", "mouse", "Take the mouse or leave it", id="mouse", tooltip="left alone, the terminal selects"
    ),
    Binding("ctrl+l", "repaint", "Draw the screen again", id="repaint"),
    Binding("ctrl+z", "suspend_process", "To the shell and back with fg", id="suspend"),
    Binding("question_mark", "help", "Help", id="help"),
    Binding("colon,ctrl+p", "command_palette", "Commands", id="commands"),
    Binding("q", "quit", "Quit", id="quit", tooltip="the exit code is the verdict's"),
    Binding("ctrl+c", "interrupt", "Interrupt", id="interrupt", show=False),
)
"""Their ids are what a keymap of Textual names."""
