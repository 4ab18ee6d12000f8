"""Every private part of torch that compiling and loading stage programs needs, in one place.

Checked with torch 2.14.1 and 2.15.0, which agree in all that is used here. Each function states
what it relies on; if torch moved it, :func:`check_version` or the import in the function says so
instead of failing somewhere deep.
"""

import collections
import contextlib
import dataclasses
import importlib.machinery
import importlib.util
import io
import itertools
import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import fx, nn

from pp_precompile.contract.errors import PrecompileError

ADMITTED = ("2.14", "2.15")
"""The torch versions (major.minor) that may run."""

BoxedCallable = Callable[[list[Any]], Sequence[Any]]
"""A compiled program: takes a list of inputs, empties it, returns the outputs."""


def check_version() -> None:
    """Refuse a torch that this module does not know.

    Raises:
        PrecompileError: PPC006.
    """
    version = ".".join(torch.__version__.split(".")[:2])
    if version not in ADMITTED:
        raise PrecompileError(
            "PPC006",
            "this torch was not checked with pp_precompile",
            expected=f"torch {' or '.join(ADMITTED)}",
            found=f"torch {torch.__version__}",
            hint="install a supported torch, or a newer pp_precompile",
        )


def export_joint(
    stack: contextlib.ExitStack, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Trace forward and backward of ``module`` as one graph with named inputs and outputs."""
    from torch._functorch.aot_autograd import aot_export_joint_with_descriptors

    return aot_export_joint_with_descriptors(stack, module, args, kwargs)


def partition(
    joint: Any, prepare: Callable[[fx.GraphModule], None], budget: float = 1.0
) -> tuple[fx.GraphModule, fx.GraphModule]:
    """Cut a joint graph into forward and backward with torch's min-cut partitioner.

    ``prepare`` may tag nodes of the joint graph first; ``budget`` is the partitioner's own, from 0
    (all is computed again) to 1. AOTAutograd hands the graph to its ``partition_fn`` only inside
    its own compile step, whose result is dropped here.

    The partitioner's settings are given here, and not taken from the process: they reach programs,
    and are no part of a key. Under a budget it adds up sizes, also of those inputs that are process
    groups and meshes, and must be told that these hold no tensors.
    """
    import torch._functorch.config as functorch_config
    from torch._functorch.aot_autograd import aot_compile_joint_with_descriptors
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    caught: list[tuple[fx.GraphModule, fx.GraphModule]] = []
    settings = {
        "activation_memory_budget": budget,
        "activation_memory_budget_runtime_estimator": "flops",
        "activation_memory_budget_solver": "dp",
        "unsafe_treat_script_objects_as_zero_size": True,
        "visualize_memory_budget_pareto": False,
    }

    def catch(graph: fx.GraphModule, *args: Any, **kwargs: Any) -> Any:
        prepare(graph)
        with functorch_config.patch(settings):
            caught.append(min_cut_rematerialization_partition(graph, *args, **kwargs))
        return caught[0]

    aot_compile_joint_with_descriptors(joint, partition_fn=catch)
    return caught[0]


def is_random(node: fx.Node) -> bool:
    """Tell whether ``node`` draws random numbers; attention without dropout does not."""
    from torch._functorch.partitioners import is_rng_op

    return node.op == "call_function" and is_rng_op(node)


def seeded_random() -> tuple[Any, Any]:
    """Return Inductor's own ``seed(device)``, 0-d int64, and ``random(size, seed, "rand")``."""
    from torch._inductor import inductor_prims

    return inductor_prims.seed, inductor_prims.random


@contextlib.contextmanager
def random_operations(
    around: Callable[[tuple[str, ...]], contextlib.AbstractContextManager[None]],
) -> Iterator[None]:
    """Run each random operation on a DTensor inside ``around(dimensions)``.

    ``dimensions`` names the mesh dimensions along which the tensor is sharded. DTensor lets a
    tracker keep the state of generators; this one takes its place, and keeps none.
    """
    from torch.distributed.tensor import _random

    class Tracker:
        distribute_region_enabled = True

        def _distribute_region(
            self, spec: Any, generator: Any = None
        ) -> contextlib.AbstractContextManager[None]:
            names = spec.mesh.mesh_dim_names or ()
            pairs = zip(names, spec.placements, strict=True)
            return around(tuple(name for name, placement in pairs if placement.is_shard()))

    before = _random._rng_tracker
    _random._rng_tracker = Tracker()
    try:
        yield
    finally:
        _random._rng_tracker = before


@contextlib.contextmanager
def fake_tracing() -> Iterator[Any]:
    """Enter a fresh FakeTensorMode and tracing context; yields the mode.

    Sizes that depend on data are admitted: expert parallelism sends as many tokens as the router
    chooses.
    """
    from torch._dynamo import config as dynamo_config
    from torch._guards import TracingContext, tracing
    from torch._subclasses import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    shapes = ShapeEnv(allow_scalar_outputs=True, allow_dynamic_output_shape_ops=True)
    mode = FakeTensorMode(shape_env=shapes, allow_non_fake_inputs=True)
    with dynamo_config.patch(capture_scalar_outputs=True), tracing(TracingContext(mode)), mode:
        yield mode


def compile_artifact(graph: fx.GraphModule) -> bytes:
    """Compile ``graph`` with Inductor and return the artifact's bytes.

    The ``functorch`` switches make AOTAutograd produce a self-contained entry; without them
    ``serialize`` has nothing to return. Times and debugging texts are blanked, so that equal
    graphs give equal bytes.
    """
    import torch._functorch.config as functorch_config
    import torch._inductor
    from torch._guards import TracingContext, tracing

    examples = [node.meta["val"] for node in graph.graph.nodes if node.op == "placeholder"]
    mode = next(value.fake_mode for value in examples if isinstance(value, torch.Tensor))
    switches = {
        "strict_autograd_cache": True,
        "bundled_autograd_cache": True,
        "force_non_lazy_backward_lowering": True,
        "force_autograd_cache": True,
        "bypass_autograd_cache_key": True,
    }
    with fresh_graph_ids(), tracing(TracingContext(mode)), functorch_config.patch(switches):
        artifact = torch._inductor.standalone_compile(
            graph, examples, dynamic_shapes="from_tracing_context", aot=True
        )
    return serialize_artifact(artifact)


def serialize_artifact(artifact: Any) -> bytes:
    """Return the bytes of what ``standalone_compile`` made, which :func:`load_artifact` takes."""
    from torch._dynamo.aot_compile_types import _serialize_triton_kernel
    from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table

    entry = artifact.inner_fn.compiled_fn.serialize()
    entry = dataclasses.replace(entry, forward_time_taken_ns=0, backward_time_taken_ns=0)
    for text in ("runnable_graph_str", "inductor_post_grad_graph_str"):
        setattr(entry.compiled_fw.result, text, "")
    for text in ("inductor_provenance_mapping_str", "inductor_provenance_stack_traces_str"):
        setattr(entry.compiled_fw.result, text, None)
    # What compiling counted; loading would count it again, and look like a compilation.
    entry.compiled_fw.result.counter_deltas = collections.Counter()
    kernels = {i: _serialize_triton_kernel(k) for i, k in kernel_side_table.id_to_kernel.items()}
    return canonical_pickle((entry, kernels, dict(kernel_side_table.constant_args)))


class _SharedText(pickle._Pickler):
    """Pickles equal texts as one object.

    Whether equal texts are the same object depends on what happened in the process before (an
    entry that came from Inductor's cache shares more of them), and pickle writes that down.
    """

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=5)
        self._texts: dict[str, str] = {}

    def save(self, obj: Any, save_persistent_id: bool = True) -> None:
        if type(obj) is str:
            obj = self._texts.setdefault(obj, obj)
        super().save(obj, save_persistent_id)  # type: ignore[misc]


def canonical_pickle(value: Any) -> bytes:
    """Return a pickle of ``value`` that depends on what is equal, not on what is one object."""
    buffer = io.BytesIO()
    _SharedText(buffer).dump(value)
    return buffer.getvalue()


def load_artifact(code: bytes) -> BoxedCallable:
    """Turn the bytes of :func:`compile_artifact` back into a callable, without compiling.

    ``code`` is a pickle: whoever calls this has checked its digest first.
    """
    from torch._dynamo.aot_compile_types import _deserialize_triton_kernel
    from torch._guards import TracingContext, tracing
    from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table
    from torch._inductor.cudagraph_utils import BoxedDeviceIndex
    from torch._inductor.utils import BoxedBool
    from torch._subclasses import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    entry, kernels, constant_args = pickle.loads(code)
    for index, kernel in kernels.items():
        loaded = _deserialize_triton_kernel(kernel)
        kernel_side_table.id_to_kernel[index] = loaded
        kernel_side_table.kernel_to_id[loaded] = index
    kernel_side_table.constant_args.update(constant_args)
    # Guards belong to the caller of a cached graph; ours is the manifest's calling convention.
    entry.guards_expr = None
    compile_kwargs = {
        "cudagraphs": BoxedBool(False),
        "boxed_forward_device_index": BoxedDeviceIndex(None),
    }
    with tracing(TracingContext(FakeTensorMode(shape_env=ShapeEnv()))):
        return entry.wrap_post_compile([], entry.sanitized_aot_config, compile_kwargs)


@contextlib.contextmanager
def fresh_graph_ids() -> Iterator[None]:
    """Number graphs from zero, so that generated sources do not depend on what came before."""
    import torch._functorch.aot_autograd as aot_autograd
    import torch._inductor.compile_fx as compile_fx

    before = aot_autograd.AOT_COUNTER, compile_fx._graph_counter
    aot_autograd.AOT_COUNTER, compile_fx._graph_counter = itertools.count(), itertools.count()
    try:
        yield
    finally:
        aot_autograd.AOT_COUNTER, compile_fx._graph_counter = before


LoadAsync = Callable[..., Callable[[], Any]]


@contextlib.contextmanager
def patched_kernel_loading(
    make: Callable[[type, LoadAsync, tuple[Any, ...]], Any],
) -> Iterator[None]:
    """Route every C++ kernel that Inductor's generated code asks for through ``make``.

    ``make`` gets the cache class, the original bound ``load_async`` (to call with a preamble for
    the source, if any) and the texts that make up the kernel's source; it returns a function that
    returns the library.
    """
    from torch._inductor.codecache import CppCodeCache

    original = CppCodeCache.__dict__["load_async"]

    def load_async(
        cls: type,
        main_code: str,
        device_type: str = "cpu",
        submit_fn: Any = None,
        extra_flags: Sequence[str] = (),
        optimized_code: str | None = None,
        **options: Any,
    ) -> Any:
        def call(preamble: str = "") -> Any:
            return original.__func__(
                cls,
                preamble + main_code,
                device_type,
                submit_fn=submit_fn,
                extra_flags=extra_flags,
                optimized_code=optimized_code and preamble + optimized_code,
                **options,
            )

        source = (cls.__name__, device_type, *extra_flags, main_code, optimized_code or "")
        return make(cls, call, source)

    CppCodeCache.load_async = classmethod(load_async)  # type: ignore[arg-type]
    try:
        yield
    finally:
        CppCodeCache.load_async = original


@contextlib.contextmanager
def compiler_flags(*flags: str) -> Iterator[None]:
    """Compile C++ kernels, and the header that Inductor precompiles for them, with ``flags``."""
    from torch._inductor import codecache

    original = codecache.CppTorchDeviceOptions

    def with_flags(*args: Any, extra_flags: Sequence[str] = (), **options: Any) -> Any:
        return original(*args, extra_flags=(*extra_flags, *flags), **options)

    codecache.CppTorchDeviceOptions = with_flags
    try:
        yield
    finally:
        codecache.CppTorchDeviceOptions = original


def load_kernel_library(cls: Any, path: str, key: str) -> Any:
    """Load a shared object as ``cls`` (a CppCodeCache) would, from a path without ``.so``.

    Python kernels find the function that reads a tensor's address through an environment variable.
    """
    from torch._inductor.codecache import CppPythonBindingsCodeCache

    if not issubclass(cls, CppPythonBindingsCodeCache):
        return cls._load_library(path, key)
    address = torch._C._dynamo.guards._torchinductor_pyobject_tensor_data_ptr
    os.environ["_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR"] = str(address)
    name = f"{key}.{cls.entry_function}"
    loader = importlib.machinery.ExtensionFileLoader(name, path)
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    module.__dict__["key"] = key
    return module


def default_store() -> Any:
    """Return the key-value store that this job's process group was made with."""
    from torch.distributed.distributed_c10d import _get_default_store

    return _get_default_store()


def register_group(name: str, group: dist.ProcessGroup) -> None:
    """Make ``name`` resolve to ``group`` in functional collectives (idempotent).

    The registry holds the group weakly and refuses to register a name twice.
    """
    from torch._C._distributed_c10d import (
        _register_process_group,
        _resolve_process_group,
        _unregister_process_group,
    )

    try:
        if _resolve_process_group(name) is group:
            return
        _unregister_process_group(name)
    except RuntimeError:
        pass  # the name is not registered
    _register_process_group(name, group)


def resolve_group(name: str) -> dist.ProcessGroup:
    """Return the group that ``name`` stands for in functional collectives.

    Raises:
        RuntimeError: if there is none.
    """
    from torch._C._distributed_c10d import _resolve_process_group

    return _resolve_process_group(name)


def forget_meshes() -> None:
    """Clear what DTensor remembers by mesh.

    Meshes of equal shape are equal to it, although another job's in this process has other groups,
    and with another rank other coordinates.
    """
    from torch.distributed.tensor import _redistribute
    from torch.distributed.tensor.debug import _clear_sharding_prop_cache

    _clear_sharding_prop_cache()
    _redistribute._gen_transform_infos.cache_clear()
