#!/bin/sh
# Pieces of the GPU benchmark on a rented machine, from the tree and without an install:
#
#     sh bench/rented.sh DIRECTORY MINUTES PIECE...       sh bench/rented.sh out 9 tests gemm
#
# The machine needs a driver, and Python with triton, NumPy, networkx, llvmlite and ml_dtypes; with
# PyTorch results are compared, with pytest the tests run. DIRECTORY gets the rows of each piece as
# soon as they are measured (PIECE.json), what was printed (PIECE.log), and the compiled kernels
# (kernels.tar.gz). A run on a bare machine takes these from the file that KERNELS names. AHEAD=1 makes
# them elsewhere, with the same versions of Python and Triton: over a driver of an H100 that computes
# nothing (made by gcc), whose times and answers mean nothing.
set -u
mkdir -p "$1" && out=$(realpath "$1") && minutes=$2 && shift 2
cd "$(dirname "$0")/.." || exit
export TW_CACHE_DIR="${TW_CACHE_DIR:-/tmp/kernels}" PYTHONUNBUFFERED=1 PYTHONPATH="$PWD/.src"
mkdir -p "$TW_CACHE_DIR"
[ -n "${KERNELS:-}" ] && tar -xzf "$KERNELS" -C "$TW_CACHE_DIR"
python3 tools/link_tree.py --quiet || exit
if [ -n "${AHEAD:-}" ]; then
  mkdir "$out/driver" && python3 tests/support/fake_libcuda.py "$out/driver" || exit
  export LD_LIBRARY_PATH="$out/driver"
fi
end=$(($(date +%s) + minutes * 60))
for piece in "$@"; do
  left=$((end - $(date +%s)))
  [ "$left" -gt 20 ] || break
  echo "== $piece, $left s left"
  timeout -s INT -k 10 "$left" python3 bench/gpu.py --only "$piece" --json "$out/$piece.json" \
    --minutes "$(awk "BEGIN { print ($left - 15) / 60 }")" >"$out/$piece.log" 2>&1
  tail -n 40 "$out/$piece.log"
  tar -czf "$out/kernels.tar.gz" -C "$TW_CACHE_DIR" .
done
