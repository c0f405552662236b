"""Native code in this process: compiled by LLVM, run by a pool of threads of its own."""
