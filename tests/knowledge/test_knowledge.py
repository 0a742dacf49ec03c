"""The tables answer what checks ask them: spot checks of every reader, and hostile questions."""

import re
from difflib import SequenceMatcher

import pynvml
import pytest
from hypothesis import given
from hypothesis import strategies as st
from in_turn import in_turn

from nodedoctor.facts.gpu.nvml import enums
from nodedoctor.knowledge import env_vars, gpus, infiniband, limits, xids
from nodedoctor.knowledge.fixes.gpu import recovery_fix
from nodedoctor.knowledge.kinds import cause, causes
from nodedoctor.knowledge.versions import containers, cuda, nccl, stack, torch_pins

# GPUs and boards


@in_turn("model", gpus.models(), ids=lambda model: model.name)
def test_a_model_knows_its_own_name_and_ids(model):
    assert all(re.compile(regex) for regex in model.name_regexes)
    assert gpus.gpu_model(model.product) is model
    assert gpus.gpu_model(f"{model.product} MIG 1g.10gb") is model
    assert all(gpus.gpu_model("a name nobody knows", pci_id) is model for pci_id in model.pci_ids)


@in_turn("model", gpus.models(), ids=lambda model: model.name)
def test_a_model_does_not_contradict_itself(model):
    if model.nvlink_links:
        assert model.nvlink_total_gbps == pytest.approx(model.nvlink_links * model.nvlink_link_gbps)
    else:
        assert (model.nvlink_gen, model.nvlink_total_gbps, model.topo_token) == (0, None, "")
    if model.topo_token:
        assert model.topo_token == f"NV{model.nvlink_links}"


@pytest.mark.parametrize(
    ("name", "links", "token", "gpus_on_board", "fabric_manager"),
    [
        ("NVIDIA H100 80GB HBM3", 18, "NV18", 8, "needed"),
        ("NVIDIA H200", 18, "NV18", 8, "needed"),
        ("NVIDIA B200", 18, "NV18", 8, "needed"),
        ("NVIDIA A100-SXM4-80GB", 12, "NV12", 8, "needed"),
        ("NVIDIA GB200", 18, "NV18", 4, "elsewhere"),
        ("NVIDIA GH200 480GB", 18, "", 1, "none"),
    ],
)
def test_boards(name, links, token, gpus_on_board, fabric_manager):
    model = gpus.gpu_model(name)
    board = gpus.platform(model, gpus_on_board)
    assert (model.nvlink_links, model.topo_token) == (links, token)
    assert (board.gpus, board.fabric_manager) == (gpus_on_board, fabric_manager)


def test_cards_without_a_board_and_with_optional_bridges():
    nvl = gpus.gpu_model("NVIDIA H100 NVL")
    assert (nvl.nvlink_links, nvl.nvlink_optional, gpus.platform(nvl, 2)) == (12, True, None)
    assert gpus.gpu_model("NVIDIA L4").nvlink_links == 0
    assert not gpus.gpu_model("NVIDIA GeForce RTX 4090").p2p


def test_a_four_gpu_node_may_be_a_small_board_or_a_part_of_a_large_one():
    model = gpus.gpu_model("NVIDIA H100 80GB HBM3")
    assert gpus.platform(model, 4).topo_token == "NV6"
    assert gpus.platform(model, 4, nvswitches=4).topo_token == "NV18"
    assert gpus.platform(model, 3).gpus == 8


@pytest.mark.parametrize("pci_id", ["2330", "0x2330", "10de:2330", "0x233010DE", "10DE:2330"])
def test_a_pci_id_in_every_spelling(pci_id):
    assert gpus.gpu_model("", pci_id).name == "H100 SXM5 80GB"


def test_switches_on_the_bus():
    assert gpus.is_nvswitch("10de:22a3")
    assert not gpus.is_nvswitch("10de:2330")
    assert not gpus.is_nvswitch("")


@given(st.text(), st.text())
def test_any_name_gets_an_answer(name, pci_id):
    found = gpus.gpu_model(name, pci_id)
    assert found is None or found in gpus.models()


# CUDA and drivers


@pytest.mark.parametrize(
    ("driver", "newest"),
    [
        ((570, 86, 10), (12, 8)),
        ((535, 129, 3), (12, 2)),
        ((580, 95, 5), (13, 0)),
        ((999,), (13, 4)),
        ((390, 1), None),
        # what nvidia-smi printed on real nodes
        ((590, 48, 1), (13, 1)),
        ((595, 80), (13, 2)),
        ((610, 57, 4), (13, 3)),
        ((550, 163, 1), (12, 4)),
    ],
)
def test_newest_cuda_of_a_driver(driver, newest):
    assert cuda.max_cuda_of_driver(driver) == newest


def test_minimum_drivers():
    assert cuda.min_driver_for_cuda((12, 8)).native == (570, 26)
    assert cuda.min_driver_for_cuda((12, 8)).minor == (525, 60, 13)
    assert cuda.min_driver_for_cuda((10, 2)).minor == (440, 33)
    assert cuda.min_driver_for_cuda((99, 0)) is None


@pytest.mark.parametrize(
    ("driver", "version", "expected"),
    [
        ((570, 86, 10), (12, 8), "native"),
        ((580, 65, 6), (12, 8), "native"),
        ((535, 129, 3), (12, 8), "minor"),
        ((535, 129, 3), (13, 0), "forward-only"),
        ((520, 61, 5), (12, 8), "too-old"),
        ((535, 129, 3), (99, 0), "unknown"),
    ],
)
def test_how_cuda_runs_on_a_driver(driver, version, expected):
    assert cuda.fit(driver, version) == expected


def test_end_of_life_of_branches():
    assert cuda.branch((580, 1)).kind == "long-term"
    assert not cuda.branch((580, 1)).past("2026-11")
    assert cuda.branch((570, 1)).past("2026-11")
    assert not cuda.branch((570, 1)).past("2026-02")
    assert cuda.branch((575, 1)).past("2020-01")
    assert cuda.branch((571, 1)) is None


@pytest.mark.parametrize("text", ["580.65.06", "535.104.05", "570.86.10", "570.124.06", "570.26", "615"])
def test_driver_versions_are_written_as_they_were_read(text):
    assert cuda.driver_text(cuda.driver_version(text)) == text


def test_cuda_versions_in_every_spelling():
    assert {cuda.cuda_version(text) for text in ("12.8", "12.8.1", "12.8.0.038", "cu128")} == {(12, 8)}
    assert cuda.cuda_version("cu130") == (13, 0)
    assert {cuda.cuda_version(text) for text in ("", "cpu", "N/A", "12", "gpu")} == {None}


# torch, and what goes on top


@pytest.mark.parametrize(
    ("version", "nccl_pin"),
    [("2.9.0", "2.27.5"), ("2.9.0+cu128", "2.27.5"), ("2.15.0", "2.30.7"), ("2.1.0", "2.18.1")],
)
def test_nccl_pin_of_a_torch_release(version, nccl_pin):
    wheel = torch_pins.torch_release(version).wheel()
    assert wheel.pins[wheel.distribution("nccl")] == nccl_pin


def test_a_torch_wheel():
    wheel = torch_pins.torch_wheel("2.9.0+cu128")
    assert (wheel.cuda, wheel.tag, wheel.distribution("nccl")) == ((12, 8), "cu128", "nvidia-nccl-cu12")
    assert (wheel.pins["triton"], wheel.distribution("nothing")) == ("3.5.0", None)
    assert (9, 0) in wheel.archs
    assert torch_pins.torch_release("2.9.0").torchvision == "0.24.0"


def test_other_builds_are_not_taken_for_the_wheel_of_pypi():
    assert torch_pins.torch_wheel("2.9.0+cu126") is None
    assert torch_pins.torch_wheel("2.9.0+cpu") is None
    assert torch_pins.torch_wheel("2.9.0", "aarch64").cuda is None
    assert torch_pins.torch_release("2.9.0a0+145a3a7bda.nv25.10") is None
    assert "cu126" in {variant.tag for variant in torch_pins.torch_release("2.9").variants}


def test_every_torch_pin_agrees_with_the_cuda_of_its_wheel():
    for wheel in torch_pins.wheels():
        majors = {name[-2:] for name in wheel.pins if re.search(r"-cu\d\d$", name)}
        assert majors <= ({str(wheel.cuda[0])} if wheel.cuda else set()), wheel


def test_packages_on_top_of_torch():
    vllm = stack.release("vllm", "0.11.0")
    assert (vllm.requires["torch"], stack.admits(vllm, "torch", "2.8.0+cu128")) == ("==2.8.0", True)
    assert not stack.admits(vllm, "torch", "2.9.0")
    assert not stack.admits(vllm, "torch", "not a version")
    assert stack.admits(vllm, "numpy", "1.0")
    assert stack.release("vllm", "99") is None
    assert [row.version for row in stack.releases_for_torch("torchvision", "2.9.0")] == ["0.24.0"]


def test_ranges_of_ray_releases():
    assert stack.ray_range("2.51.1").protobuf == ">=3.20.3"
    assert stack.ray_range("2.48.0").protobuf == "!=3.19.5,>=3.15.3"
    assert stack.ray_range("99.0.0") is None
    assert stack.ray_range("nightly") is None


def test_build_tags_read_their_own_example():
    for tag in stack.build_tags():
        assert stack.build_of(tag.package, tag.example) is not None
    build = stack.build_of("flash_attn", "2.8.3+cu12torch2.8cxx11abiFALSE")
    assert (build.cuda_major, build.torch, build.cxx11_abi) == (12, "2.8", False)
    assert stack.build_of("flash-attn", "2.8.3") is None


# Container images


def test_the_promise_of_a_skyrl_image():
    told = containers.promise("novaskyai/skyrl-train-ray-2.51.1-py3.12-cu12.8")
    assert (told.kind, told.ray, told.python, told.cuda) == ("skyrl", "2.51.1", "3.12", (12, 8))


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (
            "anyscale/image/skyrl-train-ray-2.57.0-py312-cu13.0-megatron-efa-1.47:1",
            ("2.57.0", "3.12", (13, 0), ""),
        ),
        ("rayproject/ray:2.52.0-py311-cu124", ("2.52.0", "3.11", (12, 4), "")),
        ("rayproject/ray:2.54.1-py310-gpu", ("2.54.1", "3.10", None, "")),
        ("pytorch/pytorch:2.9.1-cuda12.8-cudnn9-devel", ("", "", (12, 8), "2.9.1")),
        ("nvcr.io#nvidia/pytorch:25.10-py3", ("", "", (13, 0), "2.9.0a0+145a3a7bda")),
        ("docker://nvcr.io/nvidia/pytorch:25.04-py3@sha256:00", ("", "", (12, 9), "2.7.0a0+79aa17489c")),
        ("verlai/verl:base-verl0.5-cu126-cudnn9.8-torch2.7.1-fa2.7.4", ("", "", (12, 6), "2.7.1")),
    ],
)
def test_image_names(image, expected):
    told = containers.promise(image)
    assert (told.ray, told.python, told.cuda, told.torch) == expected


def test_names_that_promise_nothing():
    assert {
        containers.promise(image) for image in ("", "ubuntu:22.04", "vllm/vllm-openai:latest", "a/b@c")
    } == {None}


def test_every_grammar_reads_its_own_example():
    assert [containers.promise(grammar.example).kind for grammar in containers.grammars()] == [
        grammar.kind for grammar in containers.grammars()
    ]


def test_monthly_images_name_a_driver_branch_that_runs_them():
    for month in containers.ngc_releases():
        assert cuda.fit((month.driver_branch,), month.cuda) == "native", month
        assert cuda.fit((month.min_branch,), month.cuda) in ("minor", "native"), month


@given(st.text())
def test_any_image_name_gets_an_answer(image):
    told = containers.promise(image)
    assert told is None or told.image == image


# Limits, InfiniBand


def test_limits():
    shm = limits.limit("shm_docker_default")
    assert (shm.number, shm.unit) == (64, "mib")
    with pytest.raises(TypeError):
        assert limits.limit("memlock").number
    with pytest.raises(KeyError):
        limits.limit("no such limit")
    assert len({limit.key for limit in limits.limits()}) == len(limits.limits())


def test_clock_reasons_are_either_good_or_bad():
    assert (
        int(limits.limit("clock_reasons_benign").number) & int(limits.limit("clock_reasons_bad").number) == 0
    )


def test_port_states_in_the_words_of_both_tools():
    assert infiniband.port_state("ACTIVE") is infiniband.port_state("Active")
    assert infiniband.port_state("Active").healthy
    assert "subnet manager" in infiniband.port_state("Initializing").meaning
    assert infiniband.phys_state("LinkUp").healthy
    assert not infiniband.phys_state("Polling").healthy
    assert infiniband.phys_state("PhyTest") is infiniband.phys_state("Phy Test")
    assert infiniband.port_state("") is None


def test_rates_and_adapters():
    for rate in infiniband.rates():
        assert rate.x4_gbps == 4 * rate.lane_gbps
    for adapter in infiniband.adapters():
        # ibstat prints the PCI device id in decimal behind MT.
        assert adapter.hca_type == f"MT{int(adapter.pci_id, 16)}"
    assert infiniband.adapter("MT4129").name == infiniband.adapter("15b3:1021").name == "ConnectX-7"
    assert {row.rate_gbps for row in infiniband.rails_of("H100 SXM5 80GB")} == {200, 400}
    assert infiniband.counter("link_downed").limit == 0
    assert infiniband.counter("port_xmit_wait").limit is None


def test_models_that_other_tables_name_exist():
    named = {name for board in gpus.platforms() for name in board.models}
    named |= {name for board in infiniband.platforms() for name in board.models}
    assert named <= {model.name for model in gpus.models()}


# Xids


def test_xids():
    lost = xids.xid(79)
    assert (lost.level, lost.action, lost.bucket, lost.of_program) == ("fatal", "reboot", "RESTART_BM", False)
    assert xids.xid(43).action == "none"
    assert xids.xid(13).of_program
    assert xids.xid(119).action == "reset-gpu"
    assert xids.xid(999) is None
    assert len({row.xid for row in xids.xids()}) == len(xids.xids()) == 176
    assert {row.advice for row in xids.xids()} == {raw["key"] for raw in _raw("xids", "advice")}


def test_sxids():
    assert xids.sxid(12028).kind == "non-fatal"
    assert xids.sxid_kind(xids.sxid(22003).kind).action == "reboot"
    assert xids.sxid(1) is None
    assert {row.kind for row in xids.sxids()} == {row.kind for row in xids.sxid_kinds()}


def test_recovery_actions_of_xid_154():
    assert [xids.recovery_action(value).action for value in range(8)] == [
        "none",
        "reset-gpu",
        "reboot",
        "drain",
        "drain",
        "restart-service",
        "reset-gpu",
        "reboot",
    ]
    assert xids.recovery_action(17) is None


def test_nvml_nvidia_smi_and_xid_154_speak_of_the_same_recovery_actions():
    assert {row.value: row.word for row in xids.recovery_actions()} == enums.RECOVERY_ACTION
    for row in xids.recovery_actions()[1:]:
        fix = recovery_fix(row.word, 3)
        assert fix.text and fix.steps and fix.action != "none", row
        assert row.name.lower() not in fix.text.lower(), "a fix says what to do, not its name"
    assert len({recovery_fix(row.word, 3).text for row in xids.recovery_actions()[1:]}) == 7


def test_recovery_actions_have_the_numbers_that_nvidia_gives_them():
    """One release of nvidia-ml-py called 5 GPU_RESET_BUS; NVML's change log names it since 595."""
    prefix = "NVML_GPU_RECOVERY_ACTION_"
    theirs = {name.removeprefix(prefix): n for name, n in vars(pynvml).items() if name.startswith(prefix)}
    theirs.pop("GPU_RESET_BUS", None)
    assert theirs["DRAIN_P2P"] == 3
    words = {row.word: row.value for row in xids.recovery_actions()}
    assert {name.lower().replace("_", "-"): n for name, n in theirs.items()}.items() <= words.items()


def test_an_action_newer_than_the_table_gets_no_fix_of_another():
    fix = recovery_fix("unknown-99", 3)
    assert fix.action == "investigate" and not any("reset" in step.command for step in fix.steps)


def test_clock_event_reasons_have_the_bits_that_nvidia_gives_them():
    prefix = "nvmlClocksEventReason"
    names = {name.removeprefix(prefix): n for name, n in vars(pynvml).items() if name.startswith(prefix)}
    aliases = ("All", "None", "UserDefinedClocks")
    theirs = {
        n: re.sub(r"\B([A-Z])", r"_\1", name).lower() for name, n in names.items() if name not in aliases
    }
    assert theirs[4] == "sw_power_cap"
    theirs[0x100] = "display_clocks_setting"  # the word of nvidia-smi; pynvml's has no s
    assert theirs.items() <= enums.CLOCK_EVENT_REASONS.items()
    assert list(enums.CLOCK_EVENT_REASONS) == [1 << bit for bit in range(11)]


def test_nvlink5_messages_decode_in_both_layouts():
    old = xids.nvlink5(149, 0x021425C6, 0, branch=570)
    new = xids.nvlink5(149, 0b000000_100001_0000000000000_0010001, 0, branch=580, unit="NETIR_LINK_EVT")
    assert old is new
    assert (old.unit, old.bucket, old.investigate) == (
        "NETIR_LINK_EVT/NETIR_LINK_DOWN",
        "RESET_GPU",
        "INVESTIGATE_PEER_DEVICE",
    )
    assert xids.nvlink5(149, 0xFFFFFFFF, 0, branch=580) is None


def test_xid_74_words():
    assert "ECC" in xids.xid74_meanings((1 << 4, 0, 0, 0, 0, 0, 0))[0].meaning
    assert xids.xid74_meanings((0,) * 7) == xids.xid74_meanings(()) == ()


# Environment variables


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("NCCL_DEUBG", "NCCL_DEBUG"),
        ("NCCL_IB_HAC", "NCCL_IB_HCA"),
        ("NCCL_SOCKET_IFNAMES", "NCCL_SOCKET_IFNAME"),
        ("TORCH_NCCL_TRACE_BUFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"),
        ("nccl_debug", "NCCL_DEBUG"),
        ("RAY_MEMORY_USAGE_THRESHOLD", "RAY_memory_usage_threshold"),
        ("NCCL_DEBUG", None),
        ("NCCL_SOMETHING_ELSE", None),
        ("NCCL_IB_RESILIENCY_PORT_RECOVERY_FOO", None),
        ("PATH", None),
    ],
)
def test_suggestions(name, meant):
    assert env_vars.suggest(name) == meant


def test_variables_nothing_reads():
    timeout = env_vars.env_var("NCCL_TIMEOUT")
    assert (timeout.phantom, timeout.production_safe) == (True, "no-effect")
    assert "timeout=" in timeout.instead
    assert {row.production_safe for row in env_vars.env_vars() if row.phantom} == {"no-effect"}
    assert sum(row.phantom for row in env_vars.env_vars()) == 24


def test_which_versions_read_a_variable():
    ring = env_vars.env_var("TORCH_FR_BUFFER_SIZE")
    assert [ring.read_by(version) for version in ("2.7.1+cu126", "2.8.0", "2.15.0", "x")] == [
        False,
        True,
        True,
        None,
    ]
    profile = env_vars.env_var("NCCL_PROXY_PROFILE")
    assert [profile.read_by(version) for version in ("2.12.7", "2.22.3", "2.23.4")] == [True, True, False]
    assert env_vars.env_var("NCCL_TIMEOUT").read_by("2.27.5") is None
    assert env_vars.env_var("TORCH_NCCL_AVOID_RECORD_STREAMS").read_by("2.14.1")


def test_new_names_are_known_names():
    names = {row.name for row in env_vars.env_vars()}
    assert len(names) == len(env_vars.env_vars()) > 530
    assert {row.renamed_to for row in env_vars.env_vars() if row.renamed_to} <= names


def test_families():
    assert env_vars.family("NCCL_NEVER_HEARD_OF").complete
    assert env_vars.family("NCCL_FASTRAK_NEW").owner == "plugin:gcp"
    assert env_vars.family("HOME") is None
    for row in env_vars.env_vars():
        if row.name.startswith("NCCL_"):
            assert env_vars.family(row.name) is not None


@given(st.text(max_size=40))
def test_any_name_may_be_asked_for(name):
    meant = env_vars.suggest(name)
    assert meant is None or env_vars.env_var(meant) is not None


def _closest_of_all(name: str) -> str | None:
    """What `suggest` finds, with nothing but the length to leave names out beforehand."""
    allowed = 2 if len(name) >= 12 else 1
    found = []
    for candidate in env_vars._by_upper():
        if abs(len(candidate) - len(name)) > allowed:
            continue
        ratio = SequenceMatcher(None, candidate, name, autojunk=False).ratio()
        found.append((env_vars._misplaced(ratio, candidate, name), candidate))
    misplaced, closest = min(found, default=(allowed + 1, ""))
    return env_vars._by_upper()[closest] if misplaced <= allowed else None


@given(
    st.sampled_from(sorted(env_vars._by_upper())),
    st.lists(st.tuples(st.integers(0, 40), st.sampled_from(("", "X", "S", "_", "NC", "1"))), max_size=3),
)
def test_what_is_left_out_beforehand_is_not_the_closest(name, slips):
    for place, letter in slips:
        name = name[:place] + letter + name[place + 1 :]
    assert env_vars._closest(name) == _closest_of_all(name)


# NCCL and causes


def test_known_bad_nccl():
    assert "arm-proxy-slots" in {row.id for row in nccl.known_bad("2.28.9", {"aarch64"})}
    assert nccl.known_bad("2.28.9", {"nvlink"}) == ()
    assert [row.id for row in nccl.known_bad("2.29.7+cuda13.0", {"multi-node", "nvlink"})] == ["pxn-memset"]
    assert (
        nccl.known_bad("2.30.7", {"aarch64", "multi-node", "nvlink", "rdma", "peermem", "stack-unlimited"})
        == ()
    )
    assert nccl.affecting("not a version") == ()


def test_bad_versions_use_the_vocabulary():
    known = {trait.trait for trait in nccl.traits()}
    assert all(set(row.needs) <= known and row.needs for row in nccl.bad_versions())


def test_what_causes_refer_to_exists():
    names = {row.cause for row in causes()}
    for row in causes():
        for word in row.see:
            assert "." in word or word in names or env_vars.env_var(word), (row.cause, word)
    assert cause("peer_died").confirm
    assert cause("bad luck") is None


def _raw(table, section):
    from nodedoctor.knowledge.table import raw_rows

    return raw_rows(table, section)
