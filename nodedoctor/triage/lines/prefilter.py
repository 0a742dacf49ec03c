"""What a fast search looks for in a log; it loads nothing, so that the search can begin before all else."""

GREP_PREFILTER = (
    "rror", "xception", "Traceback", "atchdog", "ailed", "ailure", "WARN ", "imed out", "emory", "illed",
    "exitcode", "Xid", "enqueued", "GIL ", "inished",
)  # fmt: skip
"""Every line that matters has one of these, or stands close behind one that has."""
