"""Make a debug model small enough for one CPU core.

Nothing about the architecture changes: every kind of layer and every way to be parallel stays.
"""

from typing import Any

from torch import nn

LAYERS = 6
"""torchtitan's debug models of Llama 3 and DeepSeek-V3 have as many; Qwen3's has more."""

WIDTH = 768
"""Largest hidden size of a feed-forward network."""

EXPERTS = 8
"""Largest number of experts."""

TOP_K = 3
"""Largest number of experts that a token goes to."""


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
    routed.inner_experts.num_experts = experts
    router.top_k = routed.token_dispatcher.top_k = min(TOP_K, router.top_k)
