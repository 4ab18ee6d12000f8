"""One stored program: its bytes in the store, and its calling convention by name.

A program takes and returns flat lists of local tensors. What each position means is recorded by
name, never by guessing from the order, so that a renamed or reordered parameter is noticed.
"""

from typing import Annotated, Literal

import msgspec

from pp_precompile.contract.digest import StoredDigest
from pp_precompile.contract.encoding import MAX_BYTES
from pp_precompile.contract.integers import Natural
from pp_precompile.contract.limits import Name
from pp_precompile.contract.tensor import TensorSpec

Role = Literal[
    "unshard",
    "forward",
    "loss",
    "backward",
    "backward_input",
    "backward_weight",
    "reduce_grad",
    "overlap",
]

ROLES: tuple[Role, ...] = (
    "unshard",
    "forward",
    "loss",
    "backward",
    "backward_input",
    "backward_weight",
    "reduce_grad",
    "overlap",
)
"""The roles in the order of use.

``unshard`` gathers a stage's parameters once a step and ``reduce_grad`` reduces their gradients
once a step, where forward and backward do not do it for each microbatch. ``loss`` returns the loss
and its gradients at once. ``backward_input`` and ``backward_weight`` are ``backward`` in two parts,
for schedules that run them apart. ``overlap`` is the ``backward`` of another stage of the rank and
this stage's ``forward`` in one, for schedules that overlap them.
"""

Kind = Literal[
    "parameter",
    "buffer",
    "argument",
    "keyword",
    "loss_argument",
    "coordinate",
    "unsharded",
    "saved",
    "tangent",
    "deferred",
    "output",
    "buffer_update",
    "parameter_gradient",
    "argument_gradient",
    "unsharded_gradient",
]
"""What an input or output is.

``loss_argument`` is what the loss takes beside the prediction, by its position there, where the
last stage's forward computes the loss. ``coordinate`` is this rank's coordinate along the mesh
dimension of that name (a 0-d int64 tensor). ``saved`` goes from the forward to the backward
programs of its microbatch, ``deferred`` from ``backward_input`` to ``backward_weight``.
``unsharded`` is a parameter as ``unshard`` gathered it, in the dtype that is computed in;
``unsharded_gradient`` a gradient that ``reduce_grad`` has yet to reduce.
"""

MAX_ENTRY_BYTES = 4096
"""Most bytes that a program entry may have."""

BlobSize = Annotated[int, msgspec.Meta(ge=0, le=MAX_BYTES)]
"""Size in bytes; reading refuses a larger one, so nobody allocates what a manifest makes up."""


class BlobRef(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A blob by content: full sha256 and size in bytes."""

    digest: StoredDigest
    size: BlobSize


class Value(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One input or output of a program.

    ``name`` is the FQN for parameters and buffers (also gathered ones, their gradients and
    updates), the keyword for keyword inputs, else the decimal position. ``tensor`` is None for an
    integer, which data-dependent shapes bring along as a saved value. ``alias`` says that a saved
    value is an input passed through (``parameter:layers.1.attention.wq.weight``): it costs no
    memory.
    """

    kind: Kind
    name: Name
    tensor: TensorSpec | None
    alias: Name | None = None


class ProgramRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A program of a stage.

    ``key`` identifies the traced graph and all that steers its compilation: two programs with one
    key are interchangeable, whatever their parameters are called. ``kernels`` counts the compiled
    kernels inside the blob.
    """

    key: StoredDigest
    blob: BlobRef
    kernels: Natural
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]


class ProgramBlob(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a blob holds: the artifact's bytes and the shared objects that it needs.

    ``code`` is a pickle of torch's making, which is why nothing reads it before the blob's digest
    was checked. ``kernels`` maps the digest of a kernel's source text to the bytes of its shared
    object.
    """

    code: bytes
    kernels: dict[str, bytes]


class ProgramEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the store keeps under a program's key, so that no build compiles it twice."""

    key: StoredDigest
    blob: BlobRef
    kernels: Natural
