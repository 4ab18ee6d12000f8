"""How much of what a stored structure may hold, beside its bytes: reading enforces all of it.

Bytes alone bound too little: a few megabytes name millions of ranks, stages or dimensions, and
later code loops over these, over pairs of them, and multiplies them. Each limit is some ten times
what the largest known jobs need. Builders may hold more; bytes that were read hold no more.
"""

from typing import Annotated

import msgspec

MAX_STAGES = 4096
"""Most stages of a pipeline, and most pipeline ranks: there is none without a stage."""

MAX_BLOCKS = 4096
"""Most blocks of a stage."""

MAX_VARIANTS = 256
"""Most groups of columns with programs of their own."""

MAX_ACTIONS = 2**20
"""Most actions of a schedule, over all pipeline ranks."""

MAX_FACTORS = 2**16
"""Most key factors."""

MAX_MESH_DIMS = 16
"""Most dimensions of a mesh, and most that a tensor is distributed over."""

MAX_TENSOR_DIMS = 64
"""Most dimensions of a tensor, as in torch."""

MAX_NAME = 1024
"""Most characters of a name."""

Name = Annotated[str, msgspec.Meta(pattern=r"^[^\x00-\x1f\x7f-\x9f]*\Z", max_length=MAX_NAME)]
"""A name of a module, a tensor or a value, without control characters.

People read it on terminals and in logs, and each dot in it is a place where a prefix may end.
"""

AtMostStages = msgspec.Meta(max_length=MAX_STAGES)
AtMostBlocks = msgspec.Meta(max_length=MAX_BLOCKS)
AtMostVariants = msgspec.Meta(max_length=MAX_VARIANTS)
AtMostActions = msgspec.Meta(max_length=MAX_ACTIONS)
AtMostFactors = msgspec.Meta(max_length=MAX_FACTORS)
AtMostMeshDims = msgspec.Meta(max_length=MAX_MESH_DIMS)
AtMostTensorDims = msgspec.Meta(max_length=MAX_TENSOR_DIMS)
