"""Words that the fast search looks for; importing this loads nothing else."""

GREP_PREFILTER = (
    "rror", "xception", "Traceback", "atchdog", "ailed", "ailure", "WARN ", "imed out", "emory", "illed",
    "exitcode", "Xid", "enqueued", "GIL ", "inished",
)  # fmt: skip
"""Every line that matters has one of these, or soon follows one that has."""
