"""Write the numbers that PyTorch gives for the tasks.

An environment with PyTorch and the packages is made, or given by `--python`. The numbers go to
`tests/ecosystem/numbers`, one file for each file of tasks. `--only` renews some tasks of a file.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from ecosystem_runs import NUMBERS, Environment, files, packages, with_pytorch


def write(environment: Environment, file: str, only: Sequence[str] = ()) -> None:
    """Run a file's tasks and keep their numbers and their seconds, cold and warm. only: the tasks
    to run, beside which the others' numbers stay."""
    path = NUMBERS / f"{file}.json"
    known = {each["task"]: each for each in json.loads(path.read_text())} if only else {}
    for result in environment.run(file, *only):
        if "error" in result:
            raise SystemExit(f"{file}: {result['task']}: {result['traceback']}")
        seconds = [round(s, 3) for s in result["seconds"]]
        task = result["task"]
        known[task] = {"task": task, "seconds": seconds, "numbers": result["runs"][0]}
    NUMBERS.mkdir(exist_ok=True)
    lines = ",\n".join(map(json.dumps, known.values()))
    path.write_text(f"[\n{lines}\n]\n")
    print(f"{file}: {len(known)} tasks")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", default=files())
    parser.add_argument("--python", type=Path, help="the Python of an environment that is there")
    parser.add_argument("--only", nargs="*", default=(), help="tasks of the one file")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if given.python:
            environment = Environment(given.python.parents[1])
        else:
            environment = with_pytorch(Path(folder), packages())
        for each in given.files:
            write(environment, each, given.only)
