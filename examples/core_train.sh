#!/bin/sh
# torchtitan's core trainer, FSDP2 and a pipeline of two stages, with blocks from a store:
#   examples/core_train.sh STORE [torchtitan arguments]
# builds them first, so that training compiles nothing. $PYTHON is the interpreter to use.
set -e
store=$1
shift
recipe=$(dirname "$0")/../configs/core_llama3_debug_pp2_fsdp2.args

"${PYTHON:-python}" -c 'import sys; from pp_precompile.cli import main; sys.exit(main(sys.argv[1:]))' \
    build "@$recipe" --compile.precompile_artifact_dir "$store" "$@"
"${PYTHON:-python}" -m torch.distributed.run --nproc-per-node 4 -m pp_precompile.train "@$recipe" \
    --compile.precompile_artifact_dir "$store" --compile.precompile_policy strict "$@"
