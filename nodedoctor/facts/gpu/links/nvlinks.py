"""The NVLinks of every GPU, from NVML, else from `nvidia-smi nvlink`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nodedoctor.declare.registry import fact
from nodedoctor.facts.gpu.gpu import Gpu, NvLink
from nodedoctor.facts.gpu.gpus import Gpus
from nodedoctor.facts.gpu.links.nvlink_smi import ERRORS, STATUS, GpuLinks, LinkListing, read_links
from nodedoctor.knowledge.gpus import gpu_model
from nodedoctor.model import Observation, Unseen
from nodedoctor.record import as_dict, record, replace

WAY_OUT = "Run `nvidia-smi nvlink -s` and `nvidia-smi nvlink -e` on the host."


@fact(Gpus, STATUS, ERRORS)
@record
class NvLinks:
    """The NVLinks of every GPU that says anything about them; `source` is the probe that did."""

    source: str
    gpus: tuple[GpuLinks, ...]

    @classmethod
    def parse(cls, gpus: Gpus | Unseen, status: Observation, errors: Observation) -> NvLinks | Unseen:
        """Prefer NVML; texts fill in what it did not tell. Models without NVLink have nothing to see."""
        shown_gpus = gpus.gpus if isinstance(gpus, Gpus) else ()
        if any(gpu.nvlinks is not None for gpu in shown_gpus):
            source = gpus.source if isinstance(gpus, Gpus) else ""
            return cls(source, tuple(_of_nvml(gpu) for gpu in shown_gpus))
        states = read_links(status.text) if status.answered else ()
        counts = read_links(errors.text) if errors.answered else ()
        if not (states or counts):
            return _why_no_links(gpus, shown_gpus, status)
        by_index = {gpu.index: gpu for gpu in counts}
        gpu_links = [_join_counters(gpu, by_index.get(gpu.index)) for gpu in states or counts]
        return cls(STATUS if states else ERRORS, tuple(gpu_links))

    def public(self) -> dict[str, Any]:
        """The state of every GPU; links that the fact `gpus` has are left to it."""
        if self.source in (STATUS, ERRORS):
            return {"source": self.source, "gpus": [as_dict(gpu) for gpu in self.gpus]}
        rows = [as_dict(replace(gpu, links=())) for gpu in self.gpus]  # to copy 144 links takes 5 ms
        for row in rows:
            del row["links"]
        return {"source": self.source, "gpus": rows}

    def expectations(self) -> dict[str, str]:
        """What `--expect` would say, where every GPU has the same number of links up."""
        up = {sum(link.active is True for link in gpu.links) for gpu in self.gpus}
        count = up.pop() if len(up) == 1 else 0
        return {"nvlinks": str(count)} if count else {}


def _why_no_links(gpus: Gpus | Unseen, shown_gpus: tuple[Gpu, ...], status: Observation) -> Unseen:
    models = [gpu_model(gpu.name or "", gpu.pci_device_id or "") for gpu in shown_gpus]
    known_models = [model for model in models if model]
    if models and len(known_models) == len(models) and not any(model.nvlink_links for model in known_models):
        return Unseen.skip(f"{known_models[0].name} has no NVLink")
    if isinstance(gpus, Unseen) and not gpus.applies:
        return gpus
    modules = [model for model in known_models if model.topo_token and not model.nvlink_optional]
    guest = any(gpu.virtualization_mode == "vgpu" for gpu in shown_gpus)
    if status.answered and status.rc == 0 and not status.text.strip() and (guest or not modules):
        return Unseen.skip("nvidia-smi lists no NVLink")
    return Unseen.of(status, WAY_OUT)


def _of_nvml(gpu: Gpu) -> GpuLinks:
    links = gpu.nvlinks or ()
    if gpu.mig_mode and not any(link.active for link in links):
        return GpuLinks(gpu.index, gpu.name, "mig", said="MIG mode", uuid=gpu.uuid)
    if gpu.nvlinks is None:
        error = gpu.errors.get("nvlinks", "NO_VALUE")
        return GpuLinks(gpu.index, gpu.name, "unreadable", said=error, uuid=gpu.uuid)
    state: LinkListing = "listed" if links else "none"
    return GpuLinks(gpu.index, gpu.name, state, links, uuid=gpu.uuid)


def _join_counters(gpu: GpuLinks, counters: GpuLinks | None) -> GpuLinks:
    """The states of one text with the counters of the other."""
    if counters is None or counters is gpu:
        return gpu
    others: Mapping[int, NvLink] = {link.link: link for link in counters.links}
    links = (
        replace(link, counters=others[link.link].counters, ber=others[link.link].ber)
        if link.link in others
        else link
        for link in gpu.links
    )
    return replace(gpu, links=tuple(links))
