"""Write the numbers that PyTorch gives for the tasks.

An environment with PyTorch and the packages is made, or given by `--python`. The numbers go to
`tests/ecosystem/numbers`, one file for each file of tasks.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from ecosystem_runs import NUMBERS, Environment, files, packages, with_pytorch


def write(environment: Environment, file: str) -> None:
    """Run a file's tasks and keep their numbers and their seconds, cold and warm."""
    kept = []
    for result in environment.run(file):
        if "error" in result:
            raise SystemExit(f"{file}: {result['task']}: {result['traceback']}")
        seconds = [round(s, 3) for s in result["seconds"]]
        kept.append({"task": result["task"], "seconds": seconds, "numbers": result["runs"][0]})
    NUMBERS.mkdir(exist_ok=True)
    lines = ",\n".join(json.dumps(each) for each in kept)
    (NUMBERS / f"{file}.json").write_text(f"[\n{lines}\n]\n")
    print(f"{file}: {len(kept)} tasks")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", default=files())
    parser.add_argument("--python", type=Path, help="the Python of an environment that is there")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if given.python:
            environment = Environment(given.python.parents[1])
        else:
            environment = with_pytorch(Path(folder), packages())
        for each in given.files:
            write(environment, each)
