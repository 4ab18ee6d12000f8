"""The private attributes in which torch keeps a tensor's hooks.

Checked with torch 2.14.1; 2.15.0 has them under the same names.
"""

import torch


def has_gradient_hook(tensor: torch.Tensor) -> bool:
    """Tell whether autograd would call a function of the user's with the gradient of ``tensor``."""
    return bool(tensor._backward_hooks or tensor._post_accumulate_grad_hooks)
