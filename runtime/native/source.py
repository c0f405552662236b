"""The native runtime as LLVM IR: the pool's protocol. The entry points of launches are in
`entries.py`.

The pool is 512 bytes of shared words. A launch publishes (function, argument, chunks) and then a
ticket, epoch << 32 | chunks left. A thread that lowers the ticket by compare-and-swap owns a chunk.
The swap fails if epoch or count have changed since they were read, so a late worker with the ticket
of an earlier launch takes nothing. The function that a worker read belongs to its ticket, because
nothing is overwritten before every chunk of a launch is done. Completion counts chunks, not
workers, so a worker that sleeps through a launch costs nothing.

Workers spin for a while after a launch, then sleep on a futex on the epoch.
"""

from __future__ import annotations

from . import entries, workspace

# Byte offsets of the pool's words. Words that several threads write have their own cache line.
TICKET, DONE, END, FUNCTION, ARGUMENT, STOP = 0, 128, 192, 200, 208, 224
SLEEPERS, BUSY, WORKERS, SIZE = 256, 320, 384, 512

PAUSE = {
    "x86_64": ("call void @llvm.x86.sse2.pause()", "declare void @llvm.x86.sse2.pause()"),
    "aarch64": ('call void asm sideeffect "yield", ""()', ""),
}
FUTEX = {"x86_64": 202, "aarch64": 98}

_POOL = """
declare i64 @syscall(i64, ...)
declare i32 @sched_yield()
{pause_declaration}

define internal void @drain(ptr %pool) #0 {{
entry:
  %done = getelementptr i8, ptr %pool, i64 {DONE}
  %end.at = getelementptr i8, ptr %pool, i64 {END}
  %function.at = getelementptr i8, ptr %pool, i64 {FUNCTION}
  %argument.at = getelementptr i8, ptr %pool, i64 {ARGUMENT}
  br label %look
look:
  %ticket = load atomic i64, ptr %pool seq_cst, align 8
  %left = and i64 %ticket, 4294967295
  %none = icmp eq i64 %left, 0
  br i1 %none, label %out, label %try
try:
  %end = load atomic i64, ptr %end.at monotonic, align 8
  %function = load atomic ptr, ptr %function.at monotonic, align 8
  %argument = load atomic ptr, ptr %argument.at monotonic, align 8
  %lower = sub i64 %ticket, 1
  %pair = cmpxchg ptr %pool, i64 %ticket, i64 %lower seq_cst seq_cst
  %mine = extractvalue {{ i64, i1 }} %pair, 1
  br i1 %mine, label %run, label %look
run:
  %chunk = sub i64 %end, %left
  call void %function(ptr %argument, i64 %chunk)
  %before = atomicrmw add ptr %done, i64 1 acq_rel
  br label %look
out:
  ret void
}}

define ptr @tw_worker(ptr %pool) #0 {{
entry:
  %stop.at = getelementptr i8, ptr %pool, i64 {STOP}
  %sleepers = getelementptr i8, ptr %pool, i64 {SLEEPERS}
  %epoch.at = getelementptr i8, ptr %pool, i64 4
  br label %work
work:
  %ticket = load atomic i64, ptr %pool seq_cst, align 8
  %shifted = lshr i64 %ticket, 32
  %seen = trunc i64 %shifted to i32
  ; After the ticket: a worker that begins when it is already to stop has seen the last epoch.
  %stop = load atomic i64, ptr %stop.at acquire, align 8
  %stopped = icmp ne i64 %stop, 0
  br i1 %stopped, label %out, label %go
go:
  call void @drain(ptr %pool)
  br label %spin
spin:
  %turn = phi i64 [ 0, %go ], [ %next, %pause ], [ 0, %park ]
  %epoch = load atomic i32, ptr %epoch.at acquire, align 4
  %new = icmp ne i32 %epoch, %seen
  br i1 %new, label %work, label %pause
pause:
  {pause}
  %next = add i64 %turn, 1
  %more = icmp ult i64 %next, {spin}
  br i1 %more, label %spin, label %park
park:
  %slept = atomicrmw add ptr %sleepers, i32 1 seq_cst
  ; FUTEX_WAIT | FUTEX_PRIVATE_FLAG
  %waited = call i64 (i64, ...) @syscall(
    i64 {futex}, ptr %epoch.at, i32 128, i32 %seen, ptr null, ptr null, i32 0)
  %woken = atomicrmw sub ptr %sleepers, i32 1 seq_cst
  br label %spin
out:
  ret ptr null
}}

define internal void @wake(ptr %pool) #0 {{
entry:
  %sleepers = getelementptr i8, ptr %pool, i64 {SLEEPERS}
  %epoch.at = getelementptr i8, ptr %pool, i64 4
  %asleep = load atomic i32, ptr %sleepers seq_cst, align 4
  %any = icmp ne i32 %asleep, 0
  br i1 %any, label %call, label %out
call:
  ; FUTEX_WAKE | FUTEX_PRIVATE_FLAG
  %woken = call i64 (i64, ...) @syscall(
    i64 {futex}, ptr %epoch.at, i32 129, i32 2147483647, ptr null, ptr null, i32 0)
  br label %out
out:
  ret void
}}

; Ends the workers: a new epoch without chunks, after `stop` was set. The launch that has the pool
; ends first, and none has it from then on.
define void @tw_stop(ptr %pool) #0 {{
entry:
  %stop.at = getelementptr i8, ptr %pool, i64 {STOP}
  %busy = getelementptr i8, ptr %pool, i64 {BUSY}
  br label %take
take:
  %pair = cmpxchg ptr %busy, i64 0, i64 1 seq_cst seq_cst
  %free = extractvalue {{ i64, i1 }} %pair, 1
  br i1 %free, label %end, label %yield
yield:
  %yielded = call i32 @sched_yield()
  br label %take
end:
  store atomic i64 1, ptr %stop.at release, align 8
  %old = atomicrmw add ptr %pool, i64 4294967296 seq_cst
  call void @wake(ptr %pool)
  ret void
}}

define internal void @serial(ptr %function, ptr %argument, i64 %first, i64 %end) #0 {{
entry:
  br label %loop
loop:
  %chunk = phi i64 [ %first, %entry ], [ %next, %run ]
  %go = icmp slt i64 %chunk, %end
  br i1 %go, label %run, label %out
run:
  call void %function(ptr %argument, i64 %chunk)
  %next = add i64 %chunk, 1
  br label %loop
out:
  ret void
}}

; Runs the chunks from first up to end, which is what the pool is told.
define void @tw_parallel(ptr %pool, ptr %function, ptr %argument, i64 %first, i64 %end) #0 {{
entry:
  %count = sub i64 %end, %first
  %done = getelementptr i8, ptr %pool, i64 {DONE}
  %end.at = getelementptr i8, ptr %pool, i64 {END}
  %function.at = getelementptr i8, ptr %pool, i64 {FUNCTION}
  %argument.at = getelementptr i8, ptr %pool, i64 {ARGUMENT}
  %busy = getelementptr i8, ptr %pool, i64 {BUSY}
  %workers.at = getelementptr i8, ptr %pool, i64 {WORKERS}
  %few = icmp sle i64 %count, 1
  br i1 %few, label %alone, label %ask
ask:
  %workers = load atomic i64, ptr %workers.at monotonic, align 8
  %nobody = icmp eq i64 %workers, 0
  br i1 %nobody, label %alone, label %lock
lock:
  ; Another thread's launch has the pool: this one runs by itself.
  %pair = cmpxchg ptr %busy, i64 0, i64 1 seq_cst seq_cst
  %free = extractvalue {{ i64, i1 }} %pair, 1
  br i1 %free, label %publish, label %alone
alone:
  call void @serial(ptr %function, ptr %argument, i64 %first, i64 %end)
  ret void
publish:
  store atomic i64 0, ptr %done release, align 8
  store atomic i64 %end, ptr %end.at release, align 8
  store atomic ptr %function, ptr %function.at release, align 8
  store atomic ptr %argument, ptr %argument.at release, align 8
  %old = load atomic i64, ptr %pool acquire, align 8
  %epoch = lshr i64 %old, 32
  %epoch1 = add i64 %epoch, 1
  %high = shl i64 %epoch1, 32
  %ticket = or i64 %high, %count
  %swapped = atomicrmw xchg ptr %pool, i64 %ticket seq_cst
  call void @wake(ptr %pool)
  call void @drain(ptr %pool)
  br label %wait
wait:
  %turn = phi i64 [ 0, %publish ], [ %next, %pause ], [ 0, %yield ]
  %finished = load atomic i64, ptr %done acquire, align 8
  %all = icmp eq i64 %finished, %count
  br i1 %all, label %out, label %pause
pause:
  {pause}
  %next = add i64 %turn, 1
  %more = icmp ult i64 %next, 2000
  br i1 %more, label %wait, label %yield
yield:
  %yielded = call i32 @sched_yield()
  br label %wait
out:
  store atomic i64 0, ptr %busy release, align 8
  ret void
}}
"""

_NO_POOL = """
define void @tw_parallel(ptr %pool, ptr %function, ptr %argument, i64 %first, i64 %end) #0 {
entry:
  br label %loop
loop:
  %chunk = phi i64 [ %first, %entry ], [ %next, %run ]
  %go = icmp slt i64 %chunk, %end
  br i1 %go, label %run, label %out
run:
  call void %function(ptr %argument, i64 %chunk)
  %next = add i64 %chunk, 1
  br label %loop
out:
  ret void
}
define void @tw_stop(ptr %pool) #0 {
  ret void
}
define ptr @tw_worker(ptr %pool) #0 {
  ret ptr null
}
"""

_ATTRIBUTES = "attributes #0 = { nounwind }\n"
SPIN = 10000  # turns of some 20 ns


def text(architecture: str | None) -> str:
    """The module's text. architecture: of a Linux; None for machines without a known way to wait,
    where the launching thread runs every chunk."""
    if architecture is None:
        return _NO_POOL + workspace.text() + entries.TEXT + _ATTRIBUTES
    pause, declaration = PAUSE[architecture]
    pool = _POOL.format(
        pause=pause,
        pause_declaration=declaration,
        futex=FUTEX[architecture],
        spin=SPIN,
        DONE=DONE,
        END=END,
        FUNCTION=FUNCTION,
        ARGUMENT=ARGUMENT,
        STOP=STOP,
        SLEEPERS=SLEEPERS,
        BUSY=BUSY,
        WORKERS=WORKERS,
    )
    return pool + workspace.text() + entries.TEXT + _ATTRIBUTES
