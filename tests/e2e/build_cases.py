"""Build several jobs offline, one after the other in one process, as ``pp-precompile build`` does.

``python -m tests.e2e.build_cases CASES.json``: a JSON file with several jobs by name, each a list
of arguments.
"""

import json
import sys
from pathlib import Path

from pp_precompile.cli import main

if __name__ == "__main__":
    jobs = json.loads(Path(sys.argv[1]).read_text())
    sys.exit(max(main(["build", *words]) for words in jobs.values()))
