"""Make a debug model small enough for one CPU core.

Nothing about the architecture changes: every kind of layer and every way to be parallel stays.
"""

from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import nn
from torchtitan.models.common.moe import GroupedExperts

LAYERS = 6
"""torchtitan's debug models of Llama 3 and DeepSeek-V3 have as many; Qwen3's has more."""

WIDTH = 768
"""Largest hidden size of a feed-forward network."""

EXPERTS = 8
"""Largest number of experts."""

TOP_K = 3
"""Largest number of experts that a token goes to."""


class CpuGroupedExperts(GroupedExperts):
    """torchtitan's experts with matrix products that a CPU without bfloat16 units is quick at.

    Factors are exact in float32, where sums are taken anyway, and the result is rounded back.
    """

    @dataclass(kw_only=True, slots=True)
    class Config(GroupedExperts.Config):
        """The same configuration."""

    def _grouped_mm(
        self, *, A: torch.Tensor, B_t: torch.Tensor, offs: torch.Tensor
    ) -> torch.Tensor:
        if A.device.type != "cpu":
            return super()._grouped_mm(A=A, B_t=B_t, offs=offs)
        return torch._grouped_mm(A.float(), B_t.float(), offs=offs).to(A.dtype)


def shrink(model: Any) -> None:
    """Shrink the configuration of a decoder in place, and untie its weights.

    torchtitan does not tie weights across stages. A tied embedding has no initialization of its
    own, so it gets the usual one.
    """
    model.layers = model.layers[:LAYERS]
    for layer in model.layers:
        if layer.feed_forward is not None:
            _narrow(layer.feed_forward)
        if layer.moe is not None:
            _fewer_experts(layer.moe)
    if model.enable_weight_tying:
        model.enable_weight_tying = False
        model.tok_embeddings.param_init = {"weight": nn.init.normal_}


def _narrow(network: Any) -> None:
    width = min(WIDTH, network.w1.out_features)
    network.w1.out_features = network.w3.out_features = network.w2.in_features = width


def _fewer_experts(moe: Any) -> None:
    routed, router = moe.routed_experts, moe.router
    experts = min(EXPERTS, moe.num_experts)
    moe.num_experts = router.num_experts = router.gate.out_features = experts
    routed.token_dispatcher.num_experts = experts
    router.top_k = routed.token_dispatcher.top_k = min(TOP_K, router.top_k)
    values = {f.name: getattr(routed.inner_experts, f.name) for f in fields(routed.inner_experts)}
    routed.inner_experts = CpuGroupedExperts.Config(**(values | {"num_experts": experts}))
