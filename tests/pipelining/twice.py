"""Run an example two times in the same ranks, which spares a start: ``PORT EXAMPLE STORE``."""

import os
import runpy
import sys

if __name__ == "__main__":
    port, sys.argv = sys.argv[1], sys.argv[2:]
    runpy.run_path(sys.argv[0], run_name="__main__")
    # A key-value store of its own: torchrun's has the addresses of the first time.
    os.environ |= {"TORCHELASTIC_USE_AGENT_STORE": "False", "MASTER_PORT": port}
    runpy.run_path(sys.argv[0], run_name="__main__")
