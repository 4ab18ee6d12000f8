"""torchtitan models as configurations that precompile; thin registries, no model code."""
