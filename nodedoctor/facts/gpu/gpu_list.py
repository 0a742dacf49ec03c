"""How many GPUs a pasted `nvidia-smi -L` lists, and how many of their kind a pasted `lspci` shows.

`nvidia-smi -L` prints a line per GPU of the driver, without an address; `lspci` may be filtered, so it shows
at least what is there.
"""

from __future__ import annotations

import re
from collections import Counter

from nodedoctor.declare.registry import fact, pasted
from nodedoctor.facts.pci.lspci import LSPCI, gpu_rows
from nodedoctor.model import Observation, Unseen
from nodedoctor.record import record

LIST = "nvidia-smi-list"
gpu_list = pasted(LIST, "The output of nvidia-smi -L.")

_GPU = re.compile(r"^[> \t]*GPU (\d{1,3}): ([^\n]{1,90}?) \(UUID: GPU-[^\n)]{1,60}\)", re.M)
_COUNT = re.compile(r"^\d{1,3}$", re.M)
"""What `nvidia-smi -L | wc -l` prints."""
_ELIDED = re.compile(r"^[> \t]*(?:\[?\.{3,8}\]?|\u2026)[ \t]*$", re.M)


@fact(LIST, LSPCI.name)
@record
class ListedGpus:
    """GPUs of one kind: those that the driver lists, and the addresses of those on the bus.

    `complete`: the list has no gap, and something follows it in the paste, so that it was not cut off.
    """

    count: int
    name: str
    addresses: tuple[str, ...]
    complete: bool

    @classmethod
    def parse(cls, gpu_list: Observation, lspci: Observation) -> ListedGpus | Unseen:
        """Compare the kinds of which each has most: a display card of another kind may have no driver."""
        if not (gpu_list.answered and lspci.answered):
            return Unseen.skip("no outputs of both nvidia-smi -L and lspci were given")
        names = {int(row[1]): row[2] for row in _GPU.finditer(gpu_list.text)}
        if not names and _COUNT.search(gpu_list.text):
            return Unseen.skip("of nvidia-smi -L only the number of lines was given")
        rows = gpu_rows(lspci.text)
        if not names or not rows:
            return Unseen.of(gpu_list if not names else lspci)
        ((name, count),) = Counter(names.values()).most_common(1)
        ((kind, _),) = Counter(rows.values()).most_common(1)
        addresses = tuple(sorted(address for address, of_kind in rows.items() if of_kind == kind))
        complete = sorted(names) == [*range(len(names))] and not _ELIDED.search(gpu_list.text)
        return cls(count, name, addresses, complete)


@fact(LIST)
@record
class ListedNames:
    """The models that a pasted `nvidia-smi -L` lists, and of how many GPUs; or their number alone."""

    names: frozenset[str]
    count: int = 0

    @classmethod
    def parse(cls, gpu_list: Observation) -> ListedNames | Unseen:
        """Read each line of a GPU."""
        rows = list(_GPU.finditer(gpu_list.text))
        only = _COUNT.search(gpu_list.text)
        if not (gpu_list.answered and (rows or only)):
            return Unseen.of(gpu_list)
        return cls(frozenset(row[2] for row in rows), len(rows) or int(only[0] if only else 0))
