"""Native code in this process: LLVM compiles it, and a pool of threads runs it."""
