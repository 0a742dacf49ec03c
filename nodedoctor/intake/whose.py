"""Whose an output is: the node that its file names, else its folder, else the name of its file.

Where several nodes were mailed and nothing says which of them an output is of, that is said.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import takewhile

from nodedoctor.intake.file_names import file_of, node_names
from nodedoctor.intake.outputs import NodeOutput
from nodedoctor.record import replace
from nodedoctor.triage.identity.world import short_host
from nodedoctor.wording import comma_list

_UUID = re.compile(r"\bGPU-[\da-f]{8}-[\da-f]{4}-[\da-f]{4}-[\da-f]{4}-[\da-f]{12}\b")
ELSEWHERE = "elsewhere"
"""How the nodes are called that were asked from another one, and that nothing names."""
_FILES_AT_MOST = 4
"""Files that a note names; ours."""


def by_owner(outputs: Sequence[NodeOutput], notes: list[str]) -> dict[str, list[NodeOutput]]:
    """The outputs of each node; what is of one of several nodes, and nothing says of which, is noted."""
    assigned = by_file_name(by_folder(by_text(outputs)))
    nodes = by_node(separate(assigned, notes))
    files = list(dict.fromkeys(item.name for item in nodes.get("", ())))
    if files and len(nodes) > 1:
        notes.append(f"nothing shows which of the nodes is meant by {comma_list(files, _FILES_AT_MOST)}")
    return nodes


def by_text(outputs: Sequence[NodeOutput]) -> list[NodeOutput]:
    """The outputs; of a file that names one node all are of that."""
    hosts: dict[str, set[str]] = {}
    for item in outputs:
        if item.piece.host:
            hosts.setdefault(item.name, set()).add(item.piece.host)
    return [
        _with_host(item, next(iter(names)))
        if _is_nameless(item) and len(names := hosts.get(item.name, set())) == 1
        else item
        for item in outputs
    ]


def by_folder(outputs: list[NodeOutput]) -> list[NodeOutput]:
    """The outputs, those of no name as their folder's where several folders show GPUs: each is a node.

    A node has its GPUs shown once. Where the same output lies in two folders, these are of two nodes, or of
    one at two times; outputs that are sorted into folders by their kind stay together.
    """
    folders: dict[str, set[tuple[str, ...]]] = {}
    for item in outputs:
        if not item.bundle and item.piece.shape.first and item.piece.shape.about == "gpu":
            folders.setdefault(item.piece.shape.probe, set()).add(_folder_parts(item.name))
    twice = [folder for places in folders.values() if len(places) > 1 for folder in places]
    if not twice:
        return outputs
    above = [parts[0] for parts in takewhile(lambda parts: len(set(parts)) == 1, zip(*twice, strict=False))]
    names: dict[str, str] = {}  # a prompt in one of its outputs names the node better than its folder
    for item in outputs:
        if item.piece.host and not item.bundle and (own := _folder_below(above, item)):
            names.setdefault(own, item.piece.host)
    return [
        _with_host(item, names.get(own, own))
        if _is_nameless(item) and (own := _folder_below(above, item))
        else item
        for item in outputs
    ]


def by_file_name(outputs: list[NodeOutput]) -> list[NodeOutput]:
    """The outputs, those of no name as what the names of the files beside each other say."""
    files: dict[tuple[str, ...], dict[str, None]] = {}
    for item in outputs:
        if _is_nameless(item):
            files.setdefault(_folder_parts(item.name), {})[item.name] = None
    names = {name: host for beside in files.values() for name, host in node_names(list(beside)).items()}
    hosts = {item.piece.host for item in outputs if item.piece.host}
    if len({*hosts, *names.values()}) < 2:
        return outputs
    return [
        _with_host(item, names[item.name]) if _is_nameless(item) and item.name in names else item
        for item in outputs
    ]


def separate(outputs: list[NodeOutput], notes: list[str]) -> list[NodeOutput]:
    """The outputs; files that show the same thing each, and not of the same GPUs, are each by themselves.

    One may be older than the other or of another node: none hides the other.
    """
    files: dict[tuple[str, ...], dict[str, list[NodeOutput]]] = {}
    for item in outputs:
        if _is_nameless(item):
            files.setdefault(_unique_key(item), {}).setdefault(item.name, []).append(item)
    alone = {
        name: _UUID.findall(items[0].piece.text)
        for shown, same in files.items()
        if shown and len(same) > 1
        for name, items in same.items()
    }
    gpus = [set(uuids) for uuids in alone.values() if uuids]
    if not alone or (len(gpus) == len(alone) and set.intersection(*gpus)):
        return outputs
    paths = comma_list(sorted(alone), _FILES_AT_MOST)
    notes.append(f"nothing shows which nodes {paths} are of: each was judged by itself")
    stems = {name: file_of(name).partition(".")[0] for name in alone}
    unique = len(set(stems.values())) == len(stems)
    return [
        _with_host(item, stems[item.name] if unique else file_of(item.name).replace(".", "-"))
        if item.name in stems and _is_nameless(item)
        else item
        for item in outputs
    ]


def _unique_key(item: NodeOutput) -> tuple[str, ...]:
    """What a node shows once: its GPUs, or the adapter that a list begins with; () for anything else."""
    shape = item.piece.shape
    if shape.each_line or not shape.probe:
        return ()
    if shape.first and not shape.joins:
        return (shape.probe,) if shape.about == "gpu" else ()
    return (shape.probe, item.piece.text.partition("\n")[0].partition("(")[0].strip())


def by_node(outputs: Iterable[NodeOutput]) -> dict[str, list[NodeOutput]]:
    """The outputs of each node: a bundle is one, and so is what prompts and prefixes give one name.

    Loose outputs that name no node belong to the only one there is, or are one by themselves; what was asked
    of others than the prompt's node belongs to none that has a name.
    """
    nodes: dict[str, list[NodeOutput]] = {}
    for item in outputs:
        host = short_host(item.piece.host)
        loose = ELSEWHERE if item.piece.is_elsewhere else ""
        key = f"bundle {item.bundle}" if item.bundle else f"host {host}" if host else loose
        nodes.setdefault(key, []).append(item)
    nameless = nodes.pop("", [])
    elsewhere = nodes.pop(ELSEWHERE, [])
    if nameless and len(nodes) == 1:
        (only,) = nodes.values()
        only += nameless
    elif nameless:
        nodes[""] = nameless
    for number, items in enumerate(_separate_copies(elsewhere), 1):
        nodes[f"{ELSEWHERE} {number}"] = items
    return nodes


def _separate_copies(outputs: Sequence[NodeOutput]) -> list[list[NodeOutput]]:
    """Outputs of nodes without a name, one behind the other: what a node shows once begins the next one."""
    nodes: list[list[NodeOutput]] = []
    shown: set[str] = set()
    for item in outputs:
        key = "".join(_unique_key(item))
        if not nodes or key in shown:
            nodes.append([])
            shown = set()
        shown |= {key} - {""}
        nodes[-1].append(item)
    return nodes


def _is_nameless(item: NodeOutput) -> bool:
    return not item.bundle and not item.piece.host and not item.piece.is_elsewhere


def _with_host(item: NodeOutput, host: str) -> NodeOutput:
    return replace(item, piece=replace(item.piece, host=host))


def _folder_below(above: list[str], item: NodeOutput) -> str:
    """The folder right below one in which an output lies; "" where it lies elsewhere."""
    folder = _folder_parts(item.name)
    return folder[len(above)] if len(folder) > len(above) and [*folder[: len(above)]] == above else ""


def _folder_parts(name: str) -> tuple[str, ...]:
    """The folder of a file, in an archive or not, as its parts."""
    return tuple(name.replace("!", "/").split("/")[:-1])
