"""Which files and functions of ours one log passes from its bytes to its verdict, after all imports.

    python tools/rooms/passage.py [LOG]

Without LOG, a log of one line: a watchdog's timeout. What is printed is how far a stranger has to read.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType

from nodedoctor.triage.job import examine_job
from nodedoctor.triage.verdict.document import make_document

PACKAGE = Path(sys.modules["nodedoctor"].__file__ or "").parent
LINE = (
    "[rank1]:[E1126 10:00:00.000000 ProcessGroupNCCL.cpp:632] [Rank 1] Watchdog caught collective operation"
    " timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600001"
    " milliseconds before timing out.\n"
)


def passed_functions(log: str) -> set[CodeType]:
    """The functions of the package that were called for this log, comprehensions and lambdas left out."""
    found: set[CodeType] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        ours = code.co_filename.startswith(f"{PACKAGE}/")
        if event == "call" and ours and not code.co_name.startswith("<"):
            found.add(code)

    def judge() -> None:
        examined = examine_job([log])
        make_document(examined.verdict, examined.lines.line_of)

    judge()  # what is compiled or imported late is so by now
    sys.setprofile(note)
    try:
        judge()
    finally:
        sys.setprofile(None)
    return found


def main() -> None:
    """Print how many files and functions were passed, and in which rooms."""
    with tempfile.TemporaryDirectory() as folder:
        one_line = Path(folder, "job.log")
        one_line.write_text(LINE)
        found = passed_functions(sys.argv[1] if len(sys.argv) > 1 else str(one_line))
    files = {code.co_filename for code in found}
    print(f"{len(files)} files, {len(found)} functions")
    rooms = Counter(Path(code.co_filename).relative_to(PACKAGE).parent for code in found)
    for room, count in rooms.most_common():
        print(f"{count:5} {room}")


if __name__ == "__main__":
    main()
