"""Debug models with many equal layers: ``--module benchmarks.many_layers``.

A pipeline of 4, 8 or 16 ranks cuts them into stages of equally many layers, of which all but the
first and the last are the same.
"""

import copy

from pp_precompile.models import llama3
from pp_precompile.titan.trainer import PrecompileTrainer


def llama3_8_layers() -> PrecompileTrainer.Config:
    """Llama 3's debug model with 8 layers."""
    return _with_layers(8)


def llama3_16_layers() -> PrecompileTrainer.Config:
    """Llama 3's debug model with 16 layers."""
    return _with_layers(16)


def llama3_64_layers() -> PrecompileTrainer.Config:
    """Llama 3's debug model with 64 layers."""
    return _with_layers(64)


def _with_layers(number: int) -> PrecompileTrainer.Config:
    # Config functions are put into the module when it is imported.
    config: PrecompileTrainer.Config = vars(llama3)["llama3_debugmodel_sdpa"]()
    model = config.model_spec.model
    model.layers = [copy.deepcopy(model.layers[0]) for _ in range(number)]
    config.training.seq_len = 64
    # Sixteen microbatches of one sequence: as many as the longest pipeline has ranks.
    config.training.local_batch_size = 16
    # The embedding and the head do not count as layers, so that all stages have equally many.
    config.parallelism.pipeline_parallel_first_stage_less_layers = 0
    config.parallelism.pipeline_parallel_last_stage_less_layers = 0
    return config
