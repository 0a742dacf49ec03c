"""Shapes of what names somebody wherever it is: addresses, ids, mail, numbers of jobs."""

from __future__ import annotations

from nodedoctor.redact.known_names import QUAD

_HEX2, HEX4 = "[0-9a-fA-F]{2}", "[0-9a-fA-F]{4}"
_LABEL = "[A-Za-z0-9-]{1,63}"
DIGITS = {
    "uuid": rf"(?:{HEX4}){{2}}(?P<dash>[-_]){HEX4}(?:(?P=dash){HEX4}){{2}}(?P=dash)[0-9a-fA-F]{{12}}",
    "hardware": rf"(?<!:){_HEX2}(?P<by>[:-]){_HEX2}(?:(?P=by){_HEX2}){{4,18}}(?!:[0-9a-fA-F])",
    "colons": rf"(?<![:.])(?:[0-9a-fA-F]{{0,4}}:){{2,7}}(?:{QUAD}|[0-9a-fA-F]{{1,4}})?(?!:?[0-9a-fA-F:])",
    "quad": rf"(?<![0-9A-Za-z]\.){QUAD}(?!\.[0-9])",
    "guid": "0x[0-9a-fA-F]{16}",
    "digest": "(?:[0-9a-f]{64}|[0-9a-f]{56}|[0-9a-f]{32})",
    "account": r"(?<=:)[0-9]{12}(?=:)",
}
NEAR_DIGITS = r"(?=[0-9a-fA-F]{0,4}:|[0-9a-fA-F]{8}|[0-9a-fA-F]{2}-|0x|[0-9]{1,3}\.[0-9])"
"""True where one of these may begin: most words are none, and asking this first halves the time."""
LETTERS = {
    "numeric": r"(?=[0-9])(?:(?<=job_)(?<![A-Za-z0-9]job_)|(?<=uid_)(?<![A-Za-z0-9]uid_)"
    r"|(?<=SLURM_JOB_ID=)|(?<=SLURM_JOBID=)"
    r"|(?<=uid=)(?<![A-Za-z0-9]uid=)|(?<=\bUID:)|(?<=\bJobId=)|(?<=\bStepId=)"
    r"|(?<=slurm-)|(?<=\*\*\* JOB )|(?<=\*\*\* STEP )|(?<=[Ss]lurm job )|(?<=SLURM_JOB_ID\": \"))"
    "[0-9]{1,12}",
    "pod": rf"pod(?:{HEX4}){{2}}(?P<tie>[-_]){HEX4}(?:(?P=tie){HEX4}){{2}}(?P=tie)[0-9a-fA-F]{{12}}",
    "gpu": rf"(?:GPU|MIG)-(?:GPU-)?{HEX4}(?:-?[0-9a-fA-F]){{0,28}}(?!:)",
    "mail": rf"[A-Za-z0-9][A-Za-z0-9._+-]{{0,63}}@{_LABEL}(?:\.{_LABEL}){{0,6}}\.[A-Za-z]{{2,24}}(?!@)",
    "target": rf"[in]qn[.][0-9]{{4}}-[0-9]{{2}}(?:[.]{_LABEL}){{1,7}}(?::[^\s,;\"'\\]{{1,223}})?",
    "key": "(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{16}",
    "cloud": "(?:i-[0-9a-f]{8}|(?:i|vol|eni|vpc|subnet|sg|ami|snap|fs|lt|eipalloc)-[0-9a-f]{17})",
    "numbered": r"ip-[0-9]{1,3}(?:-[0-9]{1,3}){3}",
    "home": r"(?<=/home/)[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,62}[A-Za-z0-9_])?",
}
"""What is looked for everywhere, by name; the first that fits is taken."""
