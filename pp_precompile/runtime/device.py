"""The device that programs are compiled for and run on."""

import torch

from pp_precompile.contract.environment import Device, cpu_device


def device_facts(device: torch.device) -> Device:
    """Describe ``device``: a CPU from the system, a GPU from its driver."""
    if device.type == "cpu":
        return cpu_device()
    properties = torch.cuda.get_device_properties(device)
    return Device(
        type=device.type,
        name=properties.name,
        capability=f"{properties.major}.{properties.minor}",
        features=(f"cuda-{torch.version.cuda}", f"hip-{torch.version.hip}"),
    )
