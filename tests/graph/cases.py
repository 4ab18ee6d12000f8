"""Changes of a real build in one place, each with exactly the codes that it must be found by."""

from collections.abc import Callable

from tests.graph.builds import Plain, actions, find, program, stage, write_communication

Edit = Callable[[Plain], object]


def set_local_batch(value: Plain, size: int) -> None:
    value["factors"]["training.local_batch_size"] = str(size)


def too_few_microbatches(value: Plain) -> None:
    value["schedule"]["microbatches"] = 3
    set_local_batch(value, 3)
    for rank in range(4):
        kept = [text for text in actions(value, rank) if text[-1] in "012D"]
        value["schedule"]["actions"][rank] = kept


def split_backward(value: Plain) -> None:
    texts = actions(value, 1)
    texts[texts.index("1B0")] = "1I0"
    texts.insert(-1, "1W0")


def freeze(value: Plain) -> None:
    stage(value, 1)["parameters"][0]["tensor"]["requires_grad"] = False


def add_unused_parameter(value: Plain) -> None:
    parameters = stage(value, 1)["parameters"]
    parameters.append({**parameters[0], "name": "layers.1.unused"})


def without_keyword(value: Plain) -> None:
    stage(value, 1)["keywords"] = []
    inputs = program(value, 1, "forward")["inputs"]
    inputs[:] = [item for item in inputs if item["kind"] != "keyword"]


def tie(value: Plain) -> None:
    [embedding] = [p for p in stage(value, 0)["parameters"] if p["name"] == "tok_embeddings.weight"]
    tensor = {**embedding["tensor"], "requires_grad": False}
    stage(value, 3)["parameters"].append({**embedding, "tensor": tensor})


def exchange(texts: list[str], one: str, other: str) -> None:
    i, j = texts.index(one), texts.index(other)
    texts[i], texts[j] = texts[j], texts[i]


def move_behind(texts: list[str], moved: str, other: str) -> None:
    texts.remove(moved)
    texts.insert(texts.index(other) + 1, moved)


def ring(value: Plain) -> None:
    move_behind(actions(value, 0), "0B0", "0F0")
    move_behind(actions(value, 3), "3B0", "3F1")


def communication(edit: Edit) -> Edit:
    def both(value: Plain) -> None:
        write_communication(value)
        edit(value)

    return both


def receive_in_another_order(value: Plain) -> None:
    texts = actions(value, 1)
    texts.remove("1RECV_F1")
    texts.insert(texts.index("1RECV_F0"), "1RECV_F1")


def exchange_ranks(value: Plain) -> None:
    for table in ("stages_of_rank", "actions"):
        ranks = value["schedule"][table]
        ranks[1], ranks[2] = ranks[2], ranks[1]


def double_microbatch_size(value: Plain) -> None:
    value["schedule"]["microbatch_size"] = 2
    set_local_batch(value, 16)


def layout(value: Plain) -> Plain:
    result: Plain = stage(value, 1)["parameters"][0]["tensor"]["layout"]
    return result


def boundary_layout(value: Plain) -> None:
    tensor = stage(value, 2)["arguments"][0]["tensor"]
    tensor["layout"] = {"mesh": ["tp"], "placements": ["replicate"], "shape": tensor["shape"]}


def move_action(value: Plain) -> None:
    actions(value, 1).remove("1F0")
    actions(value, 0).insert(1, "1F0")


def tensor_of(
    index: int, role: str, side: str, kind: str, position: int = 0, **new: object
) -> Edit:
    return lambda v: find(v, index, role, side, kind, position)["tensor"].update(new)


def without(index: int, role: str, side: str, kind: str) -> Edit:
    return lambda v: program(v, index, role)[side].remove(find(v, index, role, side, kind))


CASES: dict[str, tuple[Edit, set[str], str]] = {
    # name: (change, exactly these codes, part of a finding's text)
    "local batch": (lambda v: set_local_batch(v, 12), {"PPC003"}, "8 x 1 = 8"),
    "few microbatches": (too_few_microbatches, {"PPC003"}, "at least 4 microbatches"),
    "split backward": (
        split_backward,
        {"PPC105"},
        "a backward_input program, for 1I0",
    ),
    "no loss": (
        lambda v: stage(v, 3)["programs"].pop("loss"),
        {"PPC105"},
        "a loss program, for 3F0",
    ),
    "no backward": (
        lambda v: stage(v, 1)["programs"].pop("backward"),
        {"PPC105", "PPC502", "PPC507"},
        "stage 1 has no backward program",
    ),
    "boundary layout": (boundary_layout, {"PPC501"}, "stage 2 does not take what stage 1 returns"),
    "boundary dtype": (
        lambda v: stage(v, 2)["arguments"][0]["tensor"].update(dtype="bfloat16"),
        {"PPC501", "PPC506"},
        "bfloat16[1, 256, 256] stride [65536, 256, 1] on cpu",
    ),
    "gradient taken": (
        tensor_of(1, "backward", "inputs", "tangent", stride=[65536, 1, 256]),
        {"PPC502", "PPC506"},
        "stride [65536, 1, 256]",
    ),
    "gradient given": (
        without(2, "backward", "outputs", "argument_gradient"),
        {"PPC502"},
        "no gradient",
    ),
    "saved value": (
        tensor_of(1, "forward", "outputs", "saved", 20, shape=[1, 256, 2]),
        {"PPC503"},
        "stage 1 disagree on saved value 20",
    ),
    "saved value dropped": (
        without(1, "backward", "inputs", "saved"),
        {"PPC503"},
        "no such value",
    ),
    "saved alias": (
        lambda v: find(v, 1, "forward", "outputs", "saved").update(alias="parameter:other"),
        {"PPC503"},
        "an input that forward takes",
    ),
    "saved alias of an alias": (
        lambda v: find(v, 1, "forward", "outputs", "saved").update(alias="saved:1"),
        {"PPC503"},
        "or a value that it saves",
    ),
    "loss prediction": (
        tensor_of(3, "loss", "inputs", "argument", dtype="bfloat16"),
        {"PPC504", "PPC506"},
        "the loss does not fit",
    ),
    "loss argument unnamed": (
        lambda v: find(v, 3, "loss", "inputs", "argument", 2).update(name="3"),
        {"PPC504"},
        "expected: 0, 1, 2",
    ),
    "loss argument elsewhere": (
        tensor_of(3, "loss", "inputs", "argument", 1, device="cuda"),
        {"PPC504"},
        "expected: cpu",
    ),
    "loss gradient": (
        tensor_of(3, "loss", "outputs", "argument_gradient", stride=[1, 2048, 1]),
        {"PPC504", "PPC506"},
        "gradient 0",
    ),
    "loss not a scalar": (
        tensor_of(3, "loss", "outputs", "output", shape=[1], stride=[1]),
        {"PPC504"},
        "one scalar",
    ),
    "loss in another stage": (
        lambda v: stage(v, 0)["programs"].update(loss=program(v, 3, "loss")),
        {"PPC504"},
        "in stage 3 only",
    ),
    "unknown buffer": (
        lambda v: find(v, 1, "forward", "inputs", "buffer").update(name="layers.9.cache"),
        {"PPC505"},
        "one of layers.1.attention.rope.cache, layers.2.attention.rope.cache",
    ),
    "kind of another role": (
        lambda v: find(v, 1, "forward", "inputs", "keyword").update(kind="tangent"),
        {"PPC505"},
        "values of kind parameter, unsharded, buffer, argument, keyword",
    ),
    "value twice": (
        lambda v: program(v, 1, "forward")["inputs"].append(
            find(v, 1, "forward", "inputs", "argument")
        ),
        {"PPC505"},
        "0 twice",
    ),
    "output not returned": (
        without(1, "forward", "outputs", "output"),
        {"PPC505"},
        "does not return its outputs",
    ),
    "keyword of another type": (
        tensor_of(1, "forward", "inputs", "keyword", dtype="int32"),
        {"PPC506"},
        "int32[1, 256]",
    ),
    "parameter of another shape": (
        tensor_of(1, "forward", "inputs", "parameter", shape=[256, 768]),
        {"PPC506"},
        "describes parameter layers.1.attention.qkv_linear.wqkv.weight",
    ),
    "gradient missing": (
        without(1, "backward", "outputs", "parameter_gradient"),
        {"PPC507"},
        "has no right gradient",
    ),
    "frozen with gradient": (freeze, {"PPC507"}, "no gradient"),
    "keywords": (without_keyword, {"PPC508"}, "positions: int64[1, 256]"),
    "module twice": (
        lambda v: stage(v, 0)["modules"].append("norm"),
        {"PPC511"},
        "norm in stage 0 only",
    ),
    "layer missing": (
        lambda v: v["factors"].update({"model.layers": "list of 7"}),
        {"PPC512"},
        "in no stage: layers.6",
    ),
    "layer too many": (
        lambda v: v["factors"].update({"model.layers": "list of 5"}),
        {"PPC512"},
        "not in the model: layers.5",
    ),
    "head missing": (
        lambda v: stage(v, 3)["modules"].remove("lm_head"),
        {"PPC512", "PPC515"},
        "in no stage: lm_head",
    ),
    "layers exchanged": (
        lambda v: stage(v, 1)["modules"].reverse(),
        {"PPC513"},
        "layers.1 stands behind layers.2",
    ),
    "tied weights": (tie, {"PPC514", "PPC515"}, "tok_embeddings.weight is in more than one stage"),
    "state outside": (
        lambda v: stage(v, 1)["buffers"].append(
            {**stage(v, 1)["buffers"][0], "name": "layers.10.cache"}
        ),
        {"PPC515"},
        "state of layers.1, layers.2",
    ),
    "action missing": (
        lambda v: actions(v, 1).remove("1F3"),
        {"PPC521"},
        "stage 1 does not do microbatch 3 exactly once",
    ),
    "action twice": (lambda v: actions(v, 1).insert(-1, "1B3"), {"PPC521"}, "1 F, 2 B"),
    "reduced twice": (
        lambda v: actions(v, 1).append("1REDUCE_GRAD"),
        {"PPC521"},
        "reduces its gradients 2 times",
    ),
    "reduced too early": (
        lambda v: exchange(actions(v, 1), "1B7", "1REDUCE_GRAD"),
        {"PPC522"},
        "1REDUCE_GRAD comes before 1B7",
    ),
    "backward first": (
        lambda v: exchange(actions(v, 3), "3F0", "3B0"),
        {"PPC522"},
        "3F0 (rank 3, position 1) before 3B0",
    ),
    "sent before computed": (
        communication(lambda v: exchange(actions(v, 0), "0F0", "0SEND_F0")),
        {"PPC522"},
        "0SEND_F0 comes before 0F0",
    ),
    "no receive": (
        communication(lambda v: actions(v, 1).remove("1RECV_F2")),
        {"PPC523"},
        "one 1RECV_F2 on rank 1",
    ),
    "no send": (
        communication(lambda v: actions(v, 2).remove("2SEND_B5")),
        {"PPC523"},
        "gradient of microbatch 5 from stage 2 to 1",
    ),
    "sent beyond the end": (
        communication(lambda v: actions(v, 3).append("3SEND_F0")),
        {"PPC523"},
        "stage 3 has no neighbour",
    ),
    "ring": (
        ring,
        {"PPC524"},
        "0B0 (rank 0, position 1) → 0F2 (rank 0, position 3) → 1F2 (rank 1, position 2) → "
        "1B0 (rank 1, position 3) → 0B0 (rank 0, position 1)",
    ),
    "unknown microbatch": (
        lambda v: actions(v, 1).append("1F8"),
        {"PPC525"},
        "1F8 (rank 1, position 17)",
    ),
    "action on another rank": (move_action, {"PPC525"}, "1F0 (rank 0, position 1)"),
    "received in another order": (
        communication(receive_in_another_order),
        {"PPC526"},
        "1RECV_F0 (rank 1, position 1) first",
    ),
    "ranks exchanged": (exchange_ranks, {"PPC527"}, "stages 1 on rank 1"),
    "batch dimension": (double_microbatch_size, {"PPC531"}, "2 as first dimension"),
    "unknown mesh dimension": (
        lambda v: layout(v).update(mesh=["dpp"]),
        {"PPC532"},
        "instead of 'dpp'",
    ),
    "unknown placement": (
        lambda v: layout(v).update(placements=["split(0)"]),
        {"PPC532"},
        "not 'split(0)'",
    ),
    "placement beyond the shape": (
        lambda v: layout(v).update(placements=["shard(2)"]),
        {"PPC532"},
        "a dimension below 2",
    ),
    "shard of another size": (
        lambda v: layout(v).update(shape=[1536, 256]),
        {"PPC532"},
        "local sizes 1536 x 256",
    ),
}
