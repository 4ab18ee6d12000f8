"""What steers the compiler whatever the job: software, device, and settings of this process."""

import torch

from pp_precompile.contract.environment import Environment
from pp_precompile.stage.compile import compiler_factors


def program_factors(environment: Environment) -> dict[str, str]:
    """Return the factors that steer compilation whatever the job: part of every program's key."""
    return environment.factors() | process_factors()


def process_factors() -> dict[str, str]:
    """Return those that are settings of this process: of Inductor and of torch."""
    return compiler_factors() | _torch_modes()


def _torch_modes() -> dict[str, str]:
    """Return torch's global switches that change the meaning of an operation."""
    return {
        "torch.float32_matmul_precision": torch.get_float32_matmul_precision(),
        "torch.deterministic_algorithms": str(torch.are_deterministic_algorithms_enabled()),
        "torch.cudnn.allow_tf32": str(torch.backends.cudnn.allow_tf32),
        "torch.cuda.reduced_precision": str(
            torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction
        ),
    }
