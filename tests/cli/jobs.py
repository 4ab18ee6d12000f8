"""A configuration that a command in a process of its own traces in seconds."""

from pp_precompile.models import llama3
from pp_precompile.titan.trainer import PrecompileTrainer


def llama3_one_layer() -> PrecompileTrainer.Config:
    """The small debug model with one layer."""
    config = llama3.llama3_debugmodel_sdpa()
    model = config.model_spec.model
    model.layers = model.layers[:1]
    return config
