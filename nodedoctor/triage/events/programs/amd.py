"""AMD: the kernel's driver (Linux, drivers/gpu/drm/amd) and ROCm's runtime (ROCR-Runtime, runtime.cpp)."""

from __future__ import annotations

from nodedoctor.triage.events.log_pattern import LogPattern, symptom_pattern

SIGNS: tuple[LogPattern, ...] = (
    symptom_pattern(
        "gpu_hardware_xid",
        "amdgpu-reset",
        r"amdgpu\S*:? .*(?:GPU reset begin|MODE[12] reset|GPU Recovery Failed)",
        "the driver reset a GPU that hung: the GPU or its firmware, less often a kernel of the program",
        of_node=True,
    ),
    symptom_pattern(
        "user_code_exception",
        "cuda-program-fault",
        r"amdgpu\S*:? .*page fault \(src_id|HSA_STATUS_ERROR_MEMORY_APERTURE_VIOLATION"
        r"|HSA_STATUS_ERROR_ILLEGAL_INSTRUCTION",
        "a kernel of the program went wrong on the GPU",
        quoted=True,
        personal=True,
    ),
    symptom_pattern(
        "gpu_hardware_xid",
        "hsa-hardware",
        r"HSA_STATUS_ERROR_EXCEPTION: An HSAIL operation resulted in a hardware exception",
        "the GPU ended a kernel with a hardware exception",
        decisive=False,
        personal=True,
    ),
)
