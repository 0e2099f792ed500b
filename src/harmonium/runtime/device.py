"""Choose the device that computes."""

import torch

from harmonium.runtime.errors import HarmoniumError


def pick_device(name: str) -> torch.device:
    """The device of a name such as cpu, cuda or cuda:1; auto: a GPU if there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.ones(1, device=device).item()  # it exists and computes
    except (RuntimeError, AssertionError) as error:
        raise HarmoniumError(f"device '{name}' is not available ({str(error).splitlines()[0]})") from error
    return device
