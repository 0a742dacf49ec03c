"""What NVIDIA's own tests say where they are installed: dcgmi diag, nvbandwidth, all_reduce_perf (--deep)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from nodedoctor.declare.registry import Command, Lane, Options, fact, probe, skipped
from nodedoctor.facts.gpu.idle import idle, not_run
from nodedoctor.facts.measured.bandwidth import PASSIVE
from nodedoctor.facts.verdicts.verdict import WORDS, in_json
from nodedoctor.json_shapes import Json, as_list, loaded, mapping, part, parts, text, words
from nodedoctor.model import Observation, Outcome, Unseen
from nodedoctor.patterns import regex
from nodedoctor.record import record, replace

DCGM, NVBANDWIDTH, NCCL_TESTS = "dcgmi-diag", "nvbandwidth", "all-reduce-perf"
AFTER = ("nvml", "processes")

_DCGM_ROW = regex(r"^[ \t]{0,40}\|([^|\n]{0,80})\|([^|\n]{0,200})\|", re.MULTILINE)
_DCGM_CATEGORY = regex(r"^[ \t]{0,40}[|+]-{3,9}[ ]{1,9}([A-Z][\w ]{1,30}?)[ ]{1,9}-{2,20}\+", re.MULTILINE)
_MESSAGE = regex(r"(Error|Warning)s?(?:: ?[A-Za-z][\w ]{0,20})?")
_RESULT = regex(r"(Pass|Fail|Warn|Skip)\b[ -]*(.*)")
_CELL = 48
"""Characters of the right column: what fills it to its last one is broken within a word."""
_ENTITY = regex(r"(\w[\w ]{0,20}\d): (Pass|Fail|Warn|Skip)")
_BY_WEIGHT = ("Fail", "Warn", "Pass", "Skip")
_DEVICES = regex(r"^(GPUs?): ?")
_TWICE = regex(r"^GPU \d{1,3}(?=GPU \d)")
_ADVICE = regex(r"(?<=[a-z0-9]) (?=(?:Run|Please|Check|Verify|Reset|Restart|Terminate|See) )")
"""How DCGM joins what it found the device and the advice (NVIDIA/DCGM, dcgmlib/dcgm_errors.h)."""
_SUM = regex(r"^SUM (\w+)\s+([\d.]+)", re.MULTILINE)
_PERF = regex(r"^[ \t]*(\d+)\s+\d+\s+float\s+sum\s+-?\d+\s+([\d.]+\s+){2}([\d.]+)\s+(\d+|N/A)", re.MULTILINE)

_NO_ALL_REDUCE = regex(
    r"^[ \t]*\d+\s+\d+\s+(?!float\s+sum\s)[a-z]\w{2,20}\s+[a-z]{3,10}\s+-?\d+\s+\d[\d.]*\s", re.MULTILINE
)
_COUNTS = regex(
    r"^[ \t]*\d+[ \t]+\d+[ \t]+[a-z]\w{2,20}[ \t]+[a-z]{3,10}[ \t]+-?\d+"
    r"[ \t]+[\d.]+[ \t]+[\d.]+[ \t]+[\d.]+[ \t]+(\S{1,12})"
    r"(?:[ \t]+[\d.]+[ \t]+[\d.]+[ \t]+[\d.]+[ \t]+(\S{1,12}))?[ \t]*$",
    re.MULTILINE,
)
"""A row of any collective, with the last columns of its two halves: out of place and in place."""
_COUNT = regex(r"\d{1,15}|\d(?:\.\d{1,9})?e\+\d\d")
"""A number of wrong elements; below 2.12 this column has the largest relative error, which is less than 1."""
_OUT_OF_BOUNDS = regex(
    r"^#[ \t]{0,9}Out of bounds values[ \t]{0,9}:[ \t]{0,9}(\d{1,15}) FAILED", re.MULTILINE
)
_RANK = regex(r"^#[ \t]+Rank[ \t]+\d+[ \t]", re.MULTILINE)
_DEVICE = regex(
    r"^#[ \t]+Rank[ \t]+\d+[ \t][^\n]{0,80}?\bon[ \t]+(\S{1,64})[ \t]+device[ \t]+\d+[ \t]+\[[\w:.]{1,16}\]"
    r"[ \t]+([^\n]{3,60})$",
    re.MULTILINE,
)
_NETWORK = regex(r"\bNCCL INFO Using network (\w{2,30})")
_NCCL = regex(r"\bNCCL version (\d[\w.+-]{0,30})")


@probe(DCGM, timeout=300, lane=Lane.GPU_LOAD, after=AFTER)
def dcgm(options: Options, nvml: Observation, processes: Observation) -> Command | Observation:
    """DCGM's diagnostic of level 2, two minutes, if dcgmi is installed."""
    return _plan_tool(DCGM, options, nvml, processes, "dcgmi", "diag", "-r", "2")


@probe(NVBANDWIDTH, timeout=120, lane=Lane.GPU_LOAD, after=AFTER)
def nvbandwidth(options: Options, nvml: Observation, processes: Observation) -> Command | Observation:
    """NVIDIA's copies between GPUs and with the host, if nvbandwidth is installed."""
    tests = ("host_to_device_memcpy_ce", "device_to_host_memcpy_ce", "device_to_device_memcpy_read_ce")
    words = [word for test in tests for word in ("-t", test)]
    return _plan_tool(NVBANDWIDTH, options, nvml, processes, "nvbandwidth", *words)


@probe(NCCL_TESTS, timeout=120, lane=Lane.GPU_LOAD, after=AFTER)
def all_reduce_perf(options: Options, nvml: Observation, processes: Observation) -> Command | Observation:
    """An all-reduce of up to 16 GiB, or what memory allows, over all GPUs, if nccl-tests is installed."""
    gpus = str(len(idle(nvml, processes).gpus))
    words = ("-b", "64M", "-e", "16G", "-f", "4", "-g", gpus)
    return _plan_tool(NCCL_TESTS, options, nvml, processes, "all_reduce_perf", *words)


def _plan_tool(
    name: str, options: Options, nvml: Observation, processes: Observation, *argv: str
) -> Command | Observation:
    if options.passive:
        return skipped(name, PASSIVE)
    free = idle(nvml, processes)
    if free.why_none or free.busy:
        return skipped(name, free.why_none or "; ".join(f"GPU {i}: {why}" for i, why in free.busy))
    return Command(argv, {"NCCL_DEBUG": "VERSION"})


def _why_no_output(observation: Observation, tool: str) -> Unseen | None:
    if observation.outcome is Outcome.MISSING:
        return Unseen.skip(f"{tool} is not installed")
    if observation.outcome is Outcome.SKIPPED:
        return not_run(observation)
    return None if observation.answered else Unseen.of(observation)


@record
class DcgmTest:
    """One test of the diagnostic: Pass, Fail, Warn or Skip, for which entities, and where it says so.

    `category` is Deployment for what tests software and settings; `words` are DCGM's own about a failure.
    """

    name: str
    result: str
    entities: str = ""
    quote: str = ""
    category: str = ""
    words: str = ""


@fact(DCGM)
@record
class DcgmDiag:
    """The tests that DCGM ran, in its order."""

    results: tuple[DcgmTest, ...]

    @classmethod
    def parse(cls, observation: Observation) -> DcgmDiag | Unseen:
        """Read the table of `dcgmi diag`, or its document (`-j`)."""
        is_json = observation.text.lstrip().startswith("{")
        rows = tuple(_dcgm_document(observation.text) if is_json else _dcgm_table(observation.text))
        return _why_no_output(observation, "dcgmi") or (cls(rows) if rows else Unseen.of(observation))


def _dcgm_table(output: str) -> Iterator[DcgmTest]:
    """The tests, each with the worst of its rows and what DCGM says of it.

    DCGM 3 has a row for the GPUs of each result, DCGM 4 one for each entity, both without a name; an error
    below a test that passed is of one above it that did not, or of none that has a name.
    """
    tests: list[DcgmTest] = []
    categories = [(match.start(), match[1]) for match in _DCGM_CATEGORY.finditer(output)]
    place, is_broken = -1, False
    for row in _DCGM_ROW.finditer(output):
        name, value, quote = row[1].strip(), row[2].strip(), row[0].strip()
        category = next((name for at, name in reversed(categories) if at < row.start()), "")
        result, entity, message = _RESULT.match(value), _ENTITY.fullmatch(value), _MESSAGE.fullmatch(name)
        if message:
            place = _place_of_message(tests, category)
            if place == len(tests):
                word = "Fail" if message[1] == "Error" else "Warn"
                tests.append(DcgmTest(category or message[1], word, "", quote, category))
            tests[place] = _with_words(tests[place], value)
        elif name:
            place = -1
            if result:
                entities = _DEVICES.sub(r"\1 ", result[2])
                tests.append(DcgmTest(name, result[1], entities, quote, category))
        elif place >= 0:
            gap = "" if is_broken and not row[2].startswith("  ") else " "
            tests[place] = _with_words(tests[place], value, gap)
        elif tests and result:
            tests[-1] = _worse_of(tests[-1], result[1], _DEVICES.sub(r"\1 ", result[2]), quote)
        elif tests and entity:
            tests[-1] = _worse_of(tests[-1], entity[2], entity[1], quote)
        is_broken = len(row[2]) == _CELL and not row[2][-2].isspace()
    yield from tests


def _place_of_message(tests: Sequence[DcgmTest], category: str) -> int:
    """Which test DCGM's message is about: the last one, unless it passed; their number where it is none."""
    bad = [place for place, test in enumerate(tests) if test.result in ("Fail", "Warn") and not test.words]
    if tests and tests[-1].result != "Pass":
        return len(tests) - 1
    return next((place for place in reversed(bad) if tests[place].category == category), len(tests))


def _with_words(test: DcgmTest, words: str, gap: str = " ") -> DcgmTest:
    all_words = _TWICE.sub("", f"{test.words}{gap}{words}".strip())
    return replace(test, words=_ADVICE.sub(". ", all_words)[:WORDS])


def _worse_of(test: DcgmTest, result: str, entities: str, quote: str) -> DcgmTest:
    """The test with one more row of it: the worst result counts, with the entities that have it."""
    if _BY_WEIGHT.index(result) < _BY_WEIGHT.index(test.result):
        return replace(test, result=result, entities=entities, quote=quote)
    if result != test.result or result not in ("Fail", "Warn"):
        return test
    return replace(test, entities=f"{test.entities} {entities}".strip())


def _dcgm_document(output: str) -> Iterator[DcgmTest]:
    try:
        document = mapping(loaded(output))
    except ValueError:
        return
    diagnostic = next((part(document, key) for key in document if key.startswith("DCGM ")), {})
    for category in parts(diagnostic, "test_categories"):
        for test in parts(category, "tests"):
            results = [item for item in (*parts(test, "results"), part(test, "test_summary")) if item]
            statuses = [text(item, "status").title() for item in results]
            worst = next((word for word in _BY_WEIGHT if word in statuses), "")
            if worst:
                bad = [item for item in results if text(item, "status").title() == worst != "Pass"]
                message, kind = _first_warning(bad), text(category, "category")
                quote = in_json(message, output)
                yield DcgmTest(text(test, "name"), worst, _entity_list(bad), quote, kind, message[:WORDS])


def _entity_list(results: Iterable[Json]) -> str:
    """GPU 3, from `gpu_id` of DCGM 3 or the entities of DCGM 4."""
    names = []
    for item in results:
        group, number = text(item, "entity_group") or "GPU", item.get("entity_id", item.get("gpu_id"))
        names += [f"{group} {number}"] if words(number) else []
    return ", ".join(dict.fromkeys(names))[:80]


def _first_warning(results: Iterable[Json]) -> str:
    """The first of the words that DCGM adds to a result."""
    for item in results:
        for warning in as_list(item.get("warnings")):
            message = text(warning, "warning") if isinstance(warning, dict) else words(warning)
            if message:
                return message
    return ""


@fact(NVBANDWIDTH)
@record
class NvBandwidth:
    """The sum over all GPUs or pairs of each test, GB/s."""

    sums_gbytes_s: dict[str, float]

    @classmethod
    def parse(cls, observation: Observation) -> NvBandwidth | Unseen:
        """Read the SUM lines of nvbandwidth."""
        sums = {
            m[1]: float(m[2]) for m in _SUM.finditer(observation.text) if m[2].count(".") < 2 and m[2] != "."
        }
        return _why_no_output(observation, "nvbandwidth") or (cls(sums) if sums else Unseen.of(observation))


@fact(NCCL_TESTS)
@record
class NcclTests:
    """Bus bandwidth by message size, GB/s, how many results were wrong, how many GPUs took part, and NCCL.

    `wrong` counts both halves of the table, of whatever collective, else what its end says is out of bounds;
    `wrong_rows` are the lines that say so. `model` are the GPUs as nvidia-smi names them, where all are
    of one kind, on so many `nodes`. `network` is what NCCL says that it uses between them.
    """

    busbw_gbytes_s: dict[int, float]
    wrong: int = 0
    gpus: int = 0
    nccl: str = ""
    model: str = ""
    wrong_rows: tuple[str, ...] = ()
    nodes: int = 1
    network: str = ""

    @classmethod
    def parse(cls, observation: Observation) -> NcclTests | Unseen:
        """Read the rates out of place of all_reduce_perf, and what was wrong."""
        rows = [
            m
            for m in _PERF.finditer(observation.text)
            if m[3].count(".") < 2 and m[3] != "." and len(m[1]) < 16
        ]
        speeds = {int(m[1]): float(m[3]) for m in rows if int(m[1])}
        wrong, wrong_rows = _wrong_results(observation.text)
        gpus, version = len(_RANK.findall(observation.text)), _NCCL.search(observation.text)
        devices = [(host, model.strip()) for host, model in _DEVICE.findall(observation.text)]
        models, nodes = {model for _, model in devices}, len({host for host, _ in devices}) or 1
        model = models.pop() if len(models) == 1 else ""
        network = _NETWORK.search(observation.text)
        tests = cls(
            speeds,
            wrong,
            gpus,
            version[1] if version else "",
            model,
            wrong_rows,
            nodes,
            network[1] if network else "",
        )
        if not (speeds or wrong) and _NO_ALL_REDUCE.search(observation.text):
            return Unseen.skip(
                "the rows are of another collective, or of another type, than all_reduce_perf's"
            )
        missing = _why_no_output(observation, "all_reduce_perf")
        return missing or (tests if speeds or wrong else Unseen.of(observation))


def _wrong_results(output: str) -> tuple[int, tuple[str, ...]]:
    """How many results of nccl-tests were wrong, and the lines that say so."""
    wrong, lines = 0, []
    for row in _COUNTS.finditer(output):
        counts = [int(float(text)) for text in row.groups() if text and _COUNT.fullmatch(text)]
        if sum(counts):
            wrong += sum(counts)
            lines.append(row[0].strip())
    for end in _OUT_OF_BOUNDS.finditer(output):
        wrong = wrong or int(end[1])
        lines.append(end[0])
    return wrong, tuple(lines)
