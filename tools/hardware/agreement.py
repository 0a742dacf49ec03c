"""Lay every number of nodedoctor beside the same number read or measured a second way.

    python agreement.py FOLDER      writes agreement.txt and agreement.json there

Rows: what, nodedoctor's value, the other value, how it was got, and one of agree, differ, moves (a value of
the moment, not judged), one side (the other has none). Runs on Python 3.8.
"""

import json
import os
import sys

from sides import COLUMNS

MOVES = ("clock_sm_mhz", "pcie_generation")  # an idle GPU lowers them between two readings
WITHIN = {"temperature_c": 5, "power_draw_w": 30}  # absolute: they change within seconds
MEASURED_WITHIN = 0.15  # our choice: copies of two programs on one idle GPU differ by some percent
COLLECTIVE_WITHIN = 0.5  # nodedoctor times one call, measure.py the best of 30
MIB = 1 << 20


def main():
    """Write the table."""
    folder = sys.argv[1]
    rows = list(read_rows(folder)) + list(measured_rows(folder))
    with open(os.path.join(folder, "agreement.json"), "w", encoding="utf-8") as file:
        json.dump(rows, file, indent=1)
    results = [row["result"] for row in rows]
    lines = [", ".join(f"{results.count(word)} {word}" for word in ("agree", "differ", "moves", "one side"))]
    for row in sorted(rows, key=lambda row: row["result"] != "differ"):
        values = f"{show(row['doctor']):>16}  {show(row['other']):>16}"
        lines.append(f"{row['result']:8}  {row['what']:44}  {values}  {row['way']}")
    with open(os.path.join(folder, "agreement.txt"), "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    print(lines[0])


def show(value):
    """A value in a column; a dash for none."""
    return "-" if value is None else str(value)[:40]


def load(folder, name):
    """A JSON document of the folder, {} where it is missing or cut."""
    try:
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            found = json.load(file)
        return found if isinstance(found, dict) else {}
    except (OSError, ValueError):
        return {}


def facts(folder, name, fact):
    """A fact of a report, {} where it could not be seen."""
    found = load(folder, name).get("facts", {}).get(fact)
    return found if isinstance(found, dict) else {}


def row(what, doctor, other, way, result):
    """One line of the table."""
    return {"what": what, "doctor": doctor, "other": other, "way": way, "result": result}


def read_rows(folder):
    """What the driver reports: nodedoctor's reading against nvidia-smi and NVML's own functions."""
    own = facts(folder, "sides-doctor.json", "gpus") or facts(folder, "whole.json", "gpus")
    gpus = {gpu.get("index"): gpu for gpu in own.get("gpus", ())}
    sides = load(folder, "sides.json")
    for side, way in (("smi", "nvidia-smi"), ("nvml", "NVML")):
        others = {gpu["index"]: gpu for gpu in sides.get(side, ())}
        if not others:
            yield row("GPUs", len(gpus) or None, None, way, "one side")
            continue
        yield row("GPUs", len(gpus), len(others), way, "agree" if len(gpus) == len(others) else "differ")
        for index in sorted(set(gpus) & set(others)):
            for field, _, _, _ in COLUMNS:
                if field not in others[index]:
                    continue
                doctor = own.get(field) if field == "driver_version" else gpus[index].get(field)
                other = others[index][field]
                yield row(f"gpu:{index} {field}", doctor, other, way, judge_reading(field, doctor, other))


def judge_reading(field, doctor, other):
    """Whether two readings are the same one."""
    if doctor is None and other is None:
        return "agree"
    if doctor is None or other is None:
        return "one side"
    if field in MOVES:
        return "agree" if doctor == other else "moves"
    if isinstance(doctor, str) or isinstance(other, str):
        # nvidia-smi writes the domain of a bus address with eight digits
        same = str(doctor).lower() == str(other).lower() or str(other).lower().endswith(str(doctor).lower())
        return "agree" if same else "differ"
    return "agree" if abs(doctor - other) <= WITHIN.get(field, 0.5) else "differ"


def measured_rows(folder):
    """What was measured: nodedoctor's copies, matrices and collectives against those of torch."""
    torch = {}
    for name in ("copies.jsonl", "gemm.jsonl", "collectives.jsonl"):
        for number in lines_of(os.path.join(folder, name)):
            where = tuple(number.get(key) for key in ("gpu", "source", "target", "mib"))
            torch[(number["what"], *where)] = number
    doctor = dict(doctor_numbers(folder))
    for key in sorted(set(torch) | set(doctor), key=str):
        other = torch.get(key, {}).get("value")
        own = doctor.get(key)
        result = "one side"
        if own is not None and other is not None:
            within = COLLECTIVE_WITHIN if key[4] is not None else MEASURED_WITHIN
            result = "agree" if abs(own - other) <= within * max(own, other) else "differ"
        yield row(name_of(key), own, other, "torch", result)


def name_of(key):
    """A measured number in words."""
    what, gpu, source, target, mib = key
    if source is not None:
        return f"gpu:{source} to gpu:{target} GB/s"
    unit = "TFLOP/s" if what == "gemm" else "GB/s"
    return f"{what} of {mib} MiB {unit}" if mib is not None else f"gpu:{gpu} {what} {unit}"


def lines_of(path):
    """The whole JSON lines of a file that may have been cut."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                try:
                    found = json.loads(line)
                except ValueError:
                    continue
                if isinstance(found, dict) and "what" in found:
                    yield found
    except OSError:
        return


def doctor_numbers(folder):
    """nodedoctor's measured numbers by the keys of measured_rows; those of --deep come last and count."""
    for name in ("whole.json", "deep.json"):
        found = facts(folder, name, "bandwidth")
        for gpu, speed in found.get("memory_gbytes_s", {}).items():
            yield ("memory", int(gpu), None, None, None), speed
        for copy in found.get("host", ()):
            if copy.get("kind") == "near":
                yield ("host to GPU", copy["index"], None, None, None), copy.get("h2d_gbytes_s")
                yield ("GPU to host", copy["index"], None, None, None), copy.get("d2h_gbytes_s")
        for pair in found.get("pairs", ()):
            yield ("GPU to GPU", None, pair["source"], pair["target"], None), pair.get("read_gbytes_s")
        for gpu in facts(folder, name, "gemm").get("gpus", ()):
            yield ("gemm", gpu["index"], None, None, None), gpu.get("tflops")
        for run in facts(folder, name, "collective").get("runs", ())[:1]:
            for done in run.get("operations", ()):
                if done["bytes"] >= MIB and done["busbw_gbytes_s"] is not None:
                    what = done["name"].replace("_", "-")
                    yield (what, None, None, None, round(done["bytes"] / MIB)), done["busbw_gbytes_s"]


if __name__ == "__main__":
    main()
