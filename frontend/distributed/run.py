"""torchrun: starts the processes of a script on this machine, and tells each who it is.

python -m torch.distributed.run --nproc_per_node=4 train.py ARGUMENTS

Each process gets RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT. If
one fails, the others are ended.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence


def get_args_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="torchrun", description=__doc__.split("\n")[0])
    add = parser.add_argument
    add("--nproc-per-node", "--nproc_per_node", default="1", help="processes, or cpu or auto")
    add("--nnodes", default="1", help="machines")
    add("--node-rank", "--node_rank", type=int, default=0, help="the number of this machine")
    add("--master-addr", "--master_addr", default="127.0.0.1")
    add("--master-port", "--master_port", type=int, default=0, help="by default a free one")
    add("--standalone", action="store_true", help="one machine, which is the default")
    add("--max-restarts", "--max_restarts", type=int, default=0)
    for name in ("rdzv-backend", "rdzv-endpoint", "rdzv-id", "log-dir", "start-method"):
        add(f"--{name}", f"--{name.replace('-', '_')}", default="", help="not used")
    add("-m", "--module", action="store_true", help="run a module, as python -m does")
    add("--no-python", "--no_python", action="store_true", help="run a program of any kind")
    add("training_script")
    add("training_script_args", nargs=argparse.REMAINDER)
    return parser


def _count(text: str) -> int:
    return (os.cpu_count() or 1) if text in ("cpu", "auto", "gpu") else int(text)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _command(options: argparse.Namespace) -> list[str]:
    if options.no_python:
        return [options.training_script, *options.training_script_args]
    # Whoever takes this launcher means tilewright by `import torch`. A module is run as it is.
    how = ["-m"] if options.module else ["-m", "tilewright", "run"]
    given = [options.training_script, *options.training_script_args]
    return [sys.executable, "-u", *how, *given]


def main(args: Sequence[str] | None = None) -> None:
    """Run a script in several processes. SystemExit with the status of the first that fails."""
    options = get_args_parser().parse_args(args)
    count, nodes = _count(options.nproc_per_node), int(options.nnodes.partition(":")[0])
    if nodes > 1 and not options.master_port:
        raise SystemExit("torchrun: several machines need --master-addr and --master-port")
    port = options.master_port or _free_port()
    processes = []
    for local in range(count):
        mine = {
            "RANK": options.node_rank * count + local,
            "LOCAL_RANK": local,
            "GROUP_RANK": options.node_rank,
            "WORLD_SIZE": nodes * count,
            "LOCAL_WORLD_SIZE": count,
            "MASTER_ADDR": options.master_addr,
            "MASTER_PORT": port,
            "TORCHELASTIC_RUN_ID": options.rdzv_id or "none",
        }
        environment = os.environ | {k: str(v) for k, v in mine.items()}
        environment.setdefault("OMP_NUM_THREADS", "1")
        processes.append(subprocess.Popen(_command(options), env=environment))
    try:
        status = _wait(processes)
    finally:
        for process in processes:
            if process.poll() is None:
                process.terminate()
            process.wait()
    if status:
        raise SystemExit(status)


def _wait(processes: list[subprocess.Popen[bytes]]) -> int:
    """The status of the first process that fails, or 0."""
    while True:
        states = [p.poll() for p in processes]
        failed = next((s for s in states if s), 0)
        if failed or None not in states:
            return failed
        time.sleep(0.05)


if __name__ == "__main__":
    main()
