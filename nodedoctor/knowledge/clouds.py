"""What clouds attach to their machines of eight GPUs: RDMA devices, and the plug-in NCCL uses."""

from __future__ import annotations

from collections.abc import Sequence

from nodedoctor.record import record


@record
class CloudShape:
    """One kind of machine. `product` is how its firmware names it ("": clouds that do not say).

    `driver` is the kernel driver of its RDMA devices, `link` their link layer where others may be beside
    them, and `devices` their number. Where its network is no RDMA device `nic` is the PCI id of its adapters,
    and `marker` that of a device which only this kind has. `plugin` names what NCCL needs, or is faster with,
    and `places` are folders where the cloud's images have it. `topology` are the names of their
    topology file for NCCL, where the virtual PCI tree of this kind is not the machine's.
    """

    name: str
    cloud: str
    models: tuple[str, ...]
    driver: str
    devices: int
    source: str
    product: str = ""
    link: str = ""
    nic: str = ""
    marker: str = ""
    plugin: str = ""
    places: tuple[str, ...] = ()
    topology: tuple[str, ...] = ()


WHOLE = 8
"""GPUs of a whole machine: parts of one get no RDMA devices, or their share."""

_OFI = ("/opt/amazon/ofi-nccl", "/opt/aws-ofi-nccl")
_EFA = "docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-acc-inst-types.html"
_GIB = "cloud.google.com/ai-hypercomputer/docs/nccl/overview"
_GVNIC = "1ae0:0042"
"""Google's virtual NIC (linux, drivers/net/ethernet/google/gve/gve.h, PCI_DEV_ID_GVNIC)."""
_APERTURE = "1ae0:0084"
"""Device that GPUDirect-TCPXO maps (GoogleCloudPlatform/container-engine-accelerators, gpudirect-tcpxo)."""
# 1,000 Gbit/s for A3 High and 1,800 for A3 Mega there, at 200 for each gVNIC: five and nine.
_GVNICS = "cloud.google.com/compute/docs/gpus/gpu-network-bandwidth"
_AZURE = "learn.microsoft.com/azure/virtual-machines/sizes/gpu-accelerated (ND series)"
_A100 = ("A100 SXM4 40GB", "A100 SXM4 80GB")
_H100, _H200, _B200 = "H100 SXM5 80GB", "H200 SXM5 141GB", "B200 SXM6"


def _aws_shape(product: str, models: tuple[str, ...], devices: int) -> CloudShape:
    return CloudShape(
        product, "aws", models, "efa", devices, _EFA, product, plugin="aws-ofi-nccl", places=_OFI
    )


# The EFA counts are also what `aws ec2 describe-instance-types` gives as MaximumEfaInterfaces.
SHAPES = (
    _aws_shape("p4d.24xlarge", _A100, 4),
    _aws_shape("p4de.24xlarge", _A100, 4),
    _aws_shape("p5.48xlarge", (_H100,), 32),
    _aws_shape("p5e.48xlarge", (_H200,), 32),
    _aws_shape("p5en.48xlarge", (_H200,), 16),
    _aws_shape("p6-b200.48xlarge", (_B200,), 8),
    CloudShape(
        "A3 Ultra", "gcp", (_H200,), "mlx5_core", 8, _GIB, plugin="NCCL/gIB", places=("/usr/local/gib",)
    ),
    CloudShape("A4", "gcp", (_B200,), "mlx5_core", 8, _GIB, plugin="NCCL/gIB", places=("/usr/local/gib",)),
    CloudShape(
        "A3 Mega",
        "gcp",
        (_H100,),
        "gve",
        9,
        _GVNICS,
        nic=_GVNIC,
        marker=_APERTURE,
        plugin="GPUDirect-TCPXO",
        places=("/var/lib/tcpxo",),
    ),
    CloudShape("A3 High", "gcp", (_H100,), "gve", 5, _GVNICS, nic=_GVNIC),
    CloudShape(
        "ND A100 v4",
        "azure",
        _A100,
        "mlx5_core",
        8,
        _AZURE,
        link="InfiniBand",
        topology=("/opt/microsoft/ndv4-topo.xml", "/opt/microsoft/ndv4/topo.xml"),
    ),
    CloudShape(
        "ND H100 v5 or ND H200 v5",
        "azure",
        (_H100, _H200),
        "mlx5_core",
        8,
        _AZURE,
        link="InfiniBand",
        topology=("/opt/microsoft/ndv5-topo.xml", "/opt/microsoft/ndv5/topo.xml"),
    ),
    CloudShape("BM.GPU.H100.8", "oci", (_H100,), "mlx5_core", 16, "oracle-quickstart/oci-hpc"),
)
PLACES = tuple(dict.fromkeys(place for shape in SHAPES for place in (*shape.places, *shape.topology)))


def shape_of(cloud: str, product: str, model: str, pci_ids: Sequence[str] = ()) -> CloudShape | None:
    """The kind of machine, by the name its firmware gives where the cloud has it say one; None if unknown.

    Kinds that share a GPU model differ by their own device on the PCI bus, or by having more network
    adapters than the others.
    """
    shapes = [shape for shape in SHAPES if shape.cloud == cloud]
    by_product = next((shape for shape in shapes if shape.product and shape.product == product), None)
    like = [shape for shape in shapes if not shape.product and model in shape.models]
    own = next((shape for shape in like if shape.marker and shape.marker in pci_ids), None)
    fewest = [shape for shape in like if not shape.nic or pci_ids.count(shape.nic) <= shape.devices]
    return by_product or own or min(fewest, key=lambda shape: shape.devices, default=None)
