"""The native runtime as LLVM IR: the pool's protocol. The entry points of launches are in
`entries.py`.

The pool is a table of shared words. A launch publishes (function, argument, chunks), cuts the
chunks into one stretch for each thread, and publishes a ticket for each stretch: epoch << 32 |
chunks left. A thread that lowers a ticket by compare-and-swap owns a chunk. It takes the chunks of
its own stretch first, then those that other threads have left. So neighbouring chunks are computed
by the same core. What a core reads ahead, at the end of a chunk, is what it needs next, and not
what another core is writing: 10 million parameters of Adam take 2.4 ms on two cores, and 3.5 ms
where both cores take chunks from one queue.

The swap fails if epoch or count have changed since they were read, so a late worker with a ticket
of an earlier launch takes nothing. The function that a worker calls belongs to its chunk, because
nothing is overwritten before every chunk of a launch is done. Completion counts chunks, not
workers, so a worker that sleeps through a launch costs nothing.

Workers spin for a while after a launch, then sleep on a futex on the epoch of the first ticket. A
launch that wakes them first forbids them its own core. Some kernels of virtual machines wake a
thread on the core of its waker, where it would wait for the launch to end.
"""

from __future__ import annotations

from . import entries, results, workspace

# Byte offsets of the pool's words. Words that several threads write have their own cache line.
STRETCHES, TICKET = 64, 128
"""The most stretches of a launch, and the bytes from one's ticket to the next one's."""
DONE = STRETCHES * TICKET
COUNT, FIRST, FUNCTION, ARGUMENT, CUT, STOP = (DONE + n for n in (128, 136, 144, 152, 160, 168))
SLEEPERS, BUSY, WORKERS, BEGUN = (DONE + n for n in (256, 320, 384, 392))
CORE, CORES, CORE_BYTES = DONE + 400, DONE + 512, 128
"""The core that workers may not use (its number plus one; 0 for none), and all cores that this
process may use, a bit for each."""
THREADS = CORES + CORE_BYTES
"""The system's numbers of the workers, 4 bytes each."""
PARTED = 8
"""The most workers that are kept from the launch's core, which takes a call for each. A machine of
many cores has one to wake them on."""
SIZE = THREADS + 4 * PARTED

PAUSE = {
    "x86_64": ("call void @llvm.x86.sse2.pause()", "declare void @llvm.x86.sse2.pause()"),
    "aarch64": ('call void asm sideeffect "yield", ""()', ""),
}
FUTEX = {"x86_64": 202, "aarch64": 98}
GETTID = {"x86_64": 186, "aarch64": 178}
SET_AFFINITY = {"x86_64": 203, "aarch64": 122}

_POOL = """
declare i64 @syscall(i64, ...)
declare i32 @sched_yield()
declare i32 @sched_getcpu()
declare i64 @llvm.umin.i64(i64, i64)
{pause_declaration}

; The chunks of a stretch, until none is left.
define internal void @take_from(ptr %pool, i64 %stretch) alwaysinline #0 {{
entry:
  %offset = mul i64 %stretch, {TICKET}
  %ticket.at = getelementptr i8, ptr %pool, i64 %offset
  %done = getelementptr i8, ptr %pool, i64 {DONE}
  %first.at = getelementptr i8, ptr %pool, i64 {FIRST}
  %count.at = getelementptr i8, ptr %pool, i64 {COUNT}
  %cut.at = getelementptr i8, ptr %pool, i64 {CUT}
  %function.at = getelementptr i8, ptr %pool, i64 {FUNCTION}
  %argument.at = getelementptr i8, ptr %pool, i64 {ARGUMENT}
  br label %look
look:
  %ticket = load atomic i64, ptr %ticket.at seq_cst, align 8
  %left = and i64 %ticket, 4294967295
  %none = icmp eq i64 %left, 0
  br i1 %none, label %out, label %try
try:
  %lower = sub i64 %ticket, 1
  %pair = cmpxchg ptr %ticket.at, i64 %ticket, i64 %lower seq_cst seq_cst
  %mine = extractvalue {{ i64, i1 }} %pair, 1
  br i1 %mine, label %run, label %look
run:
  %first = load atomic i64, ptr %first.at monotonic, align 8
  %count = load atomic i64, ptr %count.at monotonic, align 8
  %cut = load atomic i64, ptr %cut.at monotonic, align 8
  %function = load atomic ptr, ptr %function.at monotonic, align 8
  %argument = load atomic ptr, ptr %argument.at monotonic, align 8
  %next = add i64 %stretch, 1
  %end = call i64 @begin(i64 %count, i64 %cut, i64 %next)
  %place = sub i64 %end, %left
  %chunk = add i64 %first, %place
  call void %function(ptr %argument, i64 %chunk)
  %before = atomicrmw add ptr %done, i64 1 acq_rel
  br label %look
out:
  ret void
}}

; The first chunk of a stretch. All stretches are equally long, but for one chunk.
define internal i64 @begin(i64 %count, i64 %cut, i64 %stretch) alwaysinline #0 {{
  %product = mul i64 %count, %stretch
  %begin = udiv i64 %product, %cut
  ret i64 %begin
}}

; The thread's own stretch, then the others.
define internal void @drain(ptr %pool, i64 %thread) #0 {{
entry:
  %cut.at = getelementptr i8, ptr %pool, i64 {CUT}
  %cut = load atomic i64, ptr %cut.at acquire, align 8
  %none = icmp eq i64 %cut, 0
  br i1 %none, label %out, label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %turned = add i64 %thread, %i
  %stretch = urem i64 %turned, %cut
  call void @take_from(ptr %pool, i64 %stretch)
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %cut
  br i1 %more, label %loop, label %out
out:
  ret void
}}

define ptr @tw_worker(ptr %pool) #0 {{
entry:
  %stop.at = getelementptr i8, ptr %pool, i64 {STOP}
  %sleepers = getelementptr i8, ptr %pool, i64 {SLEEPERS}
  %epoch.at = getelementptr i8, ptr %pool, i64 4
  %begun.at = getelementptr i8, ptr %pool, i64 {BEGUN}
  %begun = atomicrmw add ptr %begun.at, i64 1 seq_cst
  %thread = add i64 %begun, 1
  %known = icmp ult i64 %begun, {PARTED}
  br i1 %known, label %tell, label %work
tell:
  %threads = getelementptr i8, ptr %pool, i64 {THREADS}
  %number.at = getelementptr i32, ptr %threads, i64 %begun
  %number = call i64 (i64, ...) @syscall(i64 {gettid})
  %number.32 = trunc i64 %number to i32
  store atomic i32 %number.32, ptr %number.at release, align 4
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
  call void @drain(ptr %pool, i64 %thread)
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

; Forbid the workers this thread's core, if it isn't forbidden already.
define internal void @part(ptr %pool) #0 {{
entry:
  %mask = alloca [{CORE_BYTES} x i8], align 8
  %core.at = getelementptr i8, ptr %pool, i64 {CORE}
  %cores = getelementptr i8, ptr %pool, i64 {CORES}
  %workers.at = getelementptr i8, ptr %pool, i64 {WORKERS}
  %threads = getelementptr i8, ptr %pool, i64 {THREADS}
  %core = call i32 @sched_getcpu()
  %named = add i32 %core, 1
  %old = load i32, ptr %core.at, align 4
  %same = icmp eq i32 %old, %named
  %unknown = icmp uge i32 %core, {MOST_CORES}
  %skip = or i1 %same, %unknown
  br i1 %skip, label %out, label %forbid
forbid:
  store i32 %named, ptr %core.at, align 4
  call void @llvm.memcpy.p0.p0.i64(ptr %mask, ptr %cores, i64 {CORE_BYTES}, i1 false)
  %byte = lshr i32 %core, 3
  %byte.at = getelementptr i8, ptr %mask, i32 %byte
  %bits = load i8, ptr %byte.at, align 1
  %place = and i32 %core, 7
  %place.8 = trunc i32 %place to i8
  %bit = shl i8 1, %place.8
  %others = xor i8 %bit, -1
  %rest = and i8 %bits, %others
  store i8 %rest, ptr %byte.at, align 1
  %workers = load atomic i64, ptr %workers.at monotonic, align 8
  br label %loop
loop:
  %i = phi i64 [ 0, %forbid ], [ %next, %ask ], [ %next, %tell ]
  %more = icmp ult i64 %i, %workers
  br i1 %more, label %ask, label %out
ask:
  %next = add i64 %i, 1
  %number.at = getelementptr i32, ptr %threads, i64 %i
  %number = load atomic i32, ptr %number.at acquire, align 4
  %begun = icmp ne i32 %number, 0
  br i1 %begun, label %tell, label %loop
tell:
  ; It fails where no core is left or where the system forbids it. The worker stays where it may be.
  %done = call i64 (i64, ...) @syscall(
    i64 {set_affinity}, i32 %number, i64 {CORE_BYTES}, ptr %mask)
  br label %loop
out:
  ret void
}}

define internal void @wake(ptr %pool) #0 {{
entry:
  %sleepers = getelementptr i8, ptr %pool, i64 {SLEEPERS}
  %epoch.at = getelementptr i8, ptr %pool, i64 4
  %asleep = load atomic i32, ptr %sleepers seq_cst, align 4
  %any = icmp ne i32 %asleep, 0
  br i1 %any, label %call, label %out
call:
  %workers.at = getelementptr i8, ptr %pool, i64 {WORKERS}
  %workers = load atomic i64, ptr %workers.at monotonic, align 8
  %few = icmp ule i64 %workers, {PARTED}
  br i1 %few, label %apart, label %rouse
apart:
  call void @part(ptr %pool)
  br label %rouse
rouse:
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
  %first.at = getelementptr i8, ptr %pool, i64 {FIRST}
  %count.at = getelementptr i8, ptr %pool, i64 {COUNT}
  %cut.at = getelementptr i8, ptr %pool, i64 {CUT}
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
  br i1 %free, label %describe, label %alone
alone:
  call void @serial(ptr %function, ptr %argument, i64 %first, i64 %end)
  ret void
describe:
  %threads = add i64 %workers, 1
  %fewer = call i64 @llvm.umin.i64(i64 %threads, i64 %count)
  %cut = call i64 @llvm.umin.i64(i64 %fewer, i64 {STRETCHES})
  store atomic i64 0, ptr %done release, align 8
  store atomic i64 %first, ptr %first.at release, align 8
  store atomic i64 %count, ptr %count.at release, align 8
  store atomic i64 %cut, ptr %cut.at release, align 8
  store atomic ptr %function, ptr %function.at release, align 8
  store atomic ptr %argument, ptr %argument.at release, align 8
  %old = load atomic i64, ptr %pool acquire, align 8
  %epoch = lshr i64 %old, 32
  %epoch1 = add i64 %epoch, 1
  %high = shl i64 %epoch1, 32
  br label %publish
publish:
  ; The first ticket comes last: its epoch calls the workers.
  %above = phi i64 [ %cut, %describe ], [ %stretch, %publish ]
  %stretch = sub i64 %above, 1
  %begin = call i64 @begin(i64 %count, i64 %cut, i64 %stretch)
  %past = call i64 @begin(i64 %count, i64 %cut, i64 %above)
  %length = sub i64 %past, %begin
  %ticket = or i64 %high, %length
  %offset = mul i64 %stretch, {TICKET}
  %ticket.at = getelementptr i8, ptr %pool, i64 %offset
  %swapped = atomicrmw xchg ptr %ticket.at, i64 %ticket seq_cst
  %more = icmp ne i64 %stretch, 0
  br i1 %more, label %publish, label %begun
begun:
  call void @wake(ptr %pool)
  call void @drain(ptr %pool, i64 0)
  br label %wait
wait:
  %turn = phi i64 [ 0, %begun ], [ %next, %pause ], [ 0, %yield ]
  %finished = load atomic i64, ptr %done acquire, align 8
  %all = icmp eq i64 %finished, %count
  br i1 %all, label %out, label %pause
pause:
  {pause}
  %next = add i64 %turn, 1
  %again = icmp ult i64 %next, 2000
  br i1 %again, label %wait, label %yield
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
        return _NO_POOL + workspace.text(linux=False) + entries.TEXT + results.TEXT + _ATTRIBUTES
    pause, declaration = PAUSE[architecture]
    pool = _POOL.format(
        pause=pause,
        pause_declaration=declaration,
        futex=FUTEX[architecture],
        spin=SPIN,
        gettid=GETTID[architecture],
        set_affinity=SET_AFFINITY[architecture],
        MOST_CORES=8 * CORE_BYTES,
        **{name: value for name, value in globals().items() if name.isupper()},
    )
    return pool + workspace.text(linux=True) + entries.TEXT + results.TEXT + _ATTRIBUTES
