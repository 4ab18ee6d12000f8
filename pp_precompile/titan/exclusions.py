"""Configuration fields that cannot reach a stage program, with the reason for each.

Everything that is not listed here is part of a build's key.
"""

import fnmatch

EXCLUDED: dict[str, str] = {
    "hf_assets_path": "tokenizer and weights are read at run time",
    "dump_folder": "where a run writes its output",
    "profiler": "observes a run from outside",
    "metrics": "observes a run from outside",
    "tokenizer": "makes the data; its shapes are keyed as inputs",
    "dataloader": "makes the data; its shapes are keyed as inputs",
    "optimizer": "runs outside the stage programs",
    "lr_scheduler": "runs outside the stage programs",
    "checkpoint": "reads and writes parameters between steps",
    "comm": "timeouts and tracing of communication",
    "validator": "calls the same forward programs",
    "training.steps": "how often the programs run",
    "training.max_norm": "gradient clipping runs outside the stage programs",
    "training.gc_freq": "when Python collects garbage",
    "training.gc_debug": "when Python collects garbage",
    "training.global_batch_size": "how often a step accumulates gradients",
    "parallelism.data_parallel_shard_degree": "-1 stands for the rest; the mesh itself is keyed",
    "parallelism.pipeline_parallel_schedule_csv": "a path; the file's content is keyed",
    "compile.enable": "stage programs are compiled either way",
    "compile.precompile": "chooses stage programs, does not change them",
    "compile.precompile_artifact_dir": "where programs are stored",
    "compile.precompile_policy": "what to do on a miss",
    "compile.precompile_trusted_keys": "who may have made a build; checked over its bytes",
    "compile.debug_graph_passes": "logs torchtitan's own graph passes",
    "debug.seed": "weights and data are made at run time",
    "debug.print_config": "prints",
    "debug.save_config_file": "prints",
    "debug.enable_structured_logging": "logs",
    "debug.detect_anomaly": "checks eager autograd",
    "model_spec": "keyed as 'model', with the names of its functions",
    "*.param_init": "initial weights are made at run time",
}
"""Dotted field names (``*`` matches any prefix) that are left out of the key, and why."""


def excluded(name: str) -> bool:
    """Tell whether the configuration field ``name`` is left out of the key."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in EXCLUDED)
