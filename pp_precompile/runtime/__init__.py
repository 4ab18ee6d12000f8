"""Run stored stage programs behind ordinary modules, on any number of ranks.

Knows torch and the contract, not torchtitan: what it installs into is any ``nn.Module``.
"""
