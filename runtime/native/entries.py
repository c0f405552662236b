"""The functions of the native runtime that Python calls, as LLVM IR: launches, alone, in sequence,
and over the steps of a loop.

A kernel may have several phases. A phase is a range of chunks, and begins when all chunks of the
phase before are done. A kernel may also have a workspace (runtime/native/workspace.py).
"""

from __future__ import annotations

# Words of a launch's descriptor.
DESCRIPTOR = (
    "function", "chunks", "words", "buffers", "moves", "errors", "buffer_places", "move_table",
    "error_places", "template", "parallel", "phases", "phase_ends", "space", "space_place", "first",
)  # fmt: skip


# launch(self, buffers, scalars): self is an int, the address of a descriptor. It fills a copy of
# the argument words and runs the chunks. It returns None, or the words as bytes if they hold an
# error.
TEXT = """
declare ptr @PySequence_GetItem(ptr, i64)
declare ptr @PyLong_AsVoidPtr(ptr)
declare i64 @PyLong_AsUnsignedLongLongMask(ptr)
declare ptr @PyNumber_Long(ptr)
declare double @PyFloat_AsDouble(ptr)
declare i32 @PyObject_IsTrue(ptr)
declare ptr @PyErr_Occurred()
declare void @PyErr_Clear()
declare i32 @PyErr_CheckSignals()
declare ptr @PyLong_FromLongLong(i64)
declare ptr @PyBytes_FromStringAndSize(ptr, i64)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare ptr @PyErr_NoMemory()
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
@_Py_NoneStruct = external global i8
@tw_pool = external global i8

define internal i64 @word(ptr %base, i64 %place) alwaysinline #0 {
  %at = getelementptr i64, ptr %base, i64 %place
  %value = load i64, ptr %at, align 8
  ret i64 %value
}

; A bundle's chunk: its table says whose it is: (function, place of the member's words, chunk).
define void @tw_bundle(ptr %words, i64 %chunk) #0 {
entry:
  %table = load ptr, ptr %words, align 8
  %thrice = mul i64 %chunk, 3
  %function.i = call i64 @word(ptr %table, i64 %thrice)
  %function = inttoptr i64 %function.i to ptr
  %second = add i64 %thrice, 1
  %place = call i64 @word(ptr %table, i64 %second)
  %third = add i64 %thrice, 2
  %own = call i64 @word(ptr %table, i64 %third)
  %member = getelementptr i64, ptr %words, i64 %place
  call void %function(ptr %member, i64 %own)
  ret void
}

; The place in a sequence of what a launch calls its i-th: table[i], or i where there is no table.
define internal i64 @place(ptr %table, i64 %i) alwaysinline #0 {
entry:
  %direct = icmp eq ptr %table, null
  br i1 %direct, label %out, label %look
look:
  %found = call i64 @word(ptr %table, i64 %i)
  br label %out
out:
  %at = phi i64 [ %i, %entry ], [ %found, %look ]
  ret i64 %at
}

; A launch whose words are filled in, but for its workspace. Returns what `one` does.
define internal i32 @filled(ptr %descriptor, ptr %words, ptr %told) noinline #0 {
entry:
  %function = load ptr, ptr %descriptor, align 8
  %chunks = call i64 @word(ptr %descriptor, i64 1)
  %words.n = call i64 @word(ptr %descriptor, i64 2)
  %errors.n = call i64 @word(ptr %descriptor, i64 5)
  %errors.i = call i64 @word(ptr %descriptor, i64 8)
  %errors = inttoptr i64 %errors.i to ptr
  %parallel = call i64 @word(ptr %descriptor, i64 10)
  %phases.n = call i64 @word(ptr %descriptor, i64 11)
  %ends.i = call i64 @word(ptr %descriptor, i64 12)
  %ends = inttoptr i64 %ends.i to ptr
  %space.bytes = call i64 @word(ptr %descriptor, i64 13)
  %space.place = call i64 @word(ptr %descriptor, i64 14)
  %first = call i64 @word(ptr %descriptor, i64 15)
  %own.space = alloca i64, i64 4, align 8  ; a block
  %bytes = mul i64 %words.n, 8
  %spacious = icmp ne i64 %space.bytes, 0
  br i1 %spacious, label %take, label %begin
take:
  %space = call ptr @take(i64 %space.bytes, ptr %own.space)
  %aligned.at = getelementptr i64, ptr %space, i64 2
  %aligned = load i64, ptr %aligned.at, align 8
  %space.word = getelementptr i64, ptr %words, i64 %space.place
  store i64 %aligned, ptr %space.word, align 8
  %starved = icmp eq i64 %aligned, 0
  br i1 %starved, label %no.memory, label %begin
no.memory:
  %raised.memory = call ptr @PyErr_NoMemory()
  br label %fail
begin:
  %held = phi ptr [ null, %entry ], [ %space, %take ]
  %long = icmp ne i64 %parallel, 0
  br i1 %long, label %unlocked, label %locked
locked:
  br label %chunk.loop
chunk.loop:
  %c = phi i64 [ %first, %locked ], [ %c.next, %chunk.run ]
  %c.more = icmp slt i64 %c, %chunks
  br i1 %c.more, label %chunk.run, label %finished
chunk.run:
  call void %function(ptr %words, i64 %c)
  %c.next = add i64 %c, 1
  br label %chunk.loop
unlocked:
  %state = call ptr @PyEval_SaveThread()
  br label %phase.loop
phase.loop:
  %p = phi i64 [ 0, %unlocked ], [ %p.next, %phase.run ]
  %p.first = phi i64 [ %first, %unlocked ], [ %p.end, %phase.run ]
  %p.more = icmp slt i64 %p, %phases.n
  br i1 %p.more, label %phase.run, label %relock
phase.run:
  %p.end = call i64 @word(ptr %ends, i64 %p)
  call void @tw_parallel(ptr @tw_pool, ptr %function, ptr %words, i64 %p.first, i64 %p.end)
  %p.next = add i64 %p, 1
  br label %phase.loop
relock:
  call void @PyEval_RestoreThread(ptr %state)
  br label %finished
finished:
  br i1 %spacious, label %give, label %error.loop
give:
  call void @give(ptr %held, ptr %own.space)
  br label %error.loop
error.loop:
  %e = phi i64 [ 0, %finished ], [ 0, %give ], [ %e.next, %error.look ]
  %e.more = icmp slt i64 %e, %errors.n
  br i1 %e.more, label %error.look, label %fine
error.look:
  %e.place = call i64 @word(ptr %errors, i64 %e)
  %e.word = call i64 @word(ptr %words, i64 %e.place)
  %e.next = add i64 %e, 1
  %e.set = icmp ne i64 %e.word, 0
  br i1 %e.set, label %tell, label %error.loop
tell:
  %silent = icmp eq ptr %told, null
  br i1 %silent, label %wrong.words, label %copy
copy:
  %text = call ptr @PyBytes_FromStringAndSize(ptr %words, i64 %bytes)
  store ptr %text, ptr %told, align 8
  br label %wrong.words
wrong.words:
  ret i32 1
fine:
  ret i32 0
fail:
  ret i32 -1
}

; One launch: 0 if all went well, 1 if an error is in its words (of which `told` gets a copy, as
; bytes, if it isn't null), -1 if a Python exception is set.
define internal i32 @one(
    ptr %descriptor, ptr %buffers, ptr %used, ptr %scalars, ptr %numbers, ptr %told) noinline #0 {
entry:
  %words.n = call i64 @word(ptr %descriptor, i64 2)
  %buffers.n = call i64 @word(ptr %descriptor, i64 3)
  %moves.n = call i64 @word(ptr %descriptor, i64 4)
  %places.i = call i64 @word(ptr %descriptor, i64 6)
  %places = inttoptr i64 %places.i to ptr
  %moves.i = call i64 @word(ptr %descriptor, i64 7)
  %moves = inttoptr i64 %moves.i to ptr
  %template.i = call i64 @word(ptr %descriptor, i64 9)
  %template = inttoptr i64 %template.i to ptr
  %words = alloca i64, i64 %words.n, align 64
  %bytes = mul i64 %words.n, 8
  call void @llvm.memcpy.p0.p0.i64(ptr %words, ptr %template, i64 %bytes, i1 false)
  br label %buffer.loop
buffer.loop:
  %b = phi i64 [ 0, %entry ], [ %b.next, %buffer.set ]
  %b.more = icmp slt i64 %b, %buffers.n
  br i1 %b.more, label %buffer.get, label %move.loop
buffer.get:
  %b.at = call i64 @place(ptr %used, i64 %b)
  %array = call ptr @PySequence_GetItem(ptr %buffers, i64 %b.at)
  %array.none = icmp eq ptr %array, null
  br i1 %array.none, label %fail, label %buffer.set
buffer.set:
  ; PyArrayObject begins with PyObject_HEAD and `char *data`.
  %data.at = getelementptr i8, ptr %array, i64 16
  %data = load i64, ptr %data.at, align 8
  call void @Py_DecRef(ptr %array)
  %place = call i64 @word(ptr %places, i64 %b)
  %slot = getelementptr i64, ptr %words, i64 %place
  store i64 %data, ptr %slot, align 8
  %b.next = add i64 %b, 1
  br label %buffer.loop
move.loop:
  %m = phi i64 [ 0, %buffer.loop ], [ %m.next, %move.done ]
  %m.more = icmp slt i64 %m, %moves.n
  br i1 %m.more, label %move.get, label %ready
move.get:
  %m3 = mul i64 %m, 3
  %m31 = add i64 %m3, 1
  %m32 = add i64 %m3, 2
  %m.source = call i64 @word(ptr %moves, i64 %m3)
  %m.word = call i64 @word(ptr %moves, i64 %m31)
  %m.kind = call i64 @word(ptr %moves, i64 %m32)
  %number.at = getelementptr i64, ptr %words, i64 %m.word
  %m.at = call i64 @place(ptr %numbers, i64 %m.source)
  %item = call ptr @PySequence_GetItem(ptr %scalars, i64 %m.at)
  %item.none = icmp eq ptr %item, null
  br i1 %item.none, label %fail, label %move.kind
move.kind:
  switch i64 %m.kind, label %as.integer [
    i64 0, label %as.float
    i64 1, label %as.double
    i64 3, label %as.bool
  ]
as.float:
  %f.wide = call double @PyFloat_AsDouble(ptr %item)
  %f = fptrunc double %f.wide to float
  store float %f, ptr %number.at, align 8
  br label %move.done
as.double:
  %d = call double @PyFloat_AsDouble(ptr %item)
  store double %d, ptr %number.at, align 8
  br label %move.done
as.bool:
  %t = call i32 @PyObject_IsTrue(ptr %item)
  %t.wide = zext i32 %t to i64
  store i64 %t.wide, ptr %number.at, align 8
  br label %move.done
as.integer:
  %whole = call ptr @PyNumber_Long(ptr %item)
  %whole.none = icmp eq ptr %whole, null
  br i1 %whole.none, label %move.done, label %as.bits
as.bits:
  %bits = call i64 @PyLong_AsUnsignedLongLongMask(ptr %whole)
  call void @Py_DecRef(ptr %whole)
  store i64 %bits, ptr %number.at, align 8
  br label %move.done
move.done:
  call void @Py_DecRef(ptr %item)
  %m.next = add i64 %m, 1
  br label %move.loop
ready:
  %no.moves = icmp eq i64 %moves.n, 0
  br i1 %no.moves, label %start, label %verify
verify:
  %raised = call ptr @PyErr_Occurred()
  %wrong = icmp ne ptr %raised, null
  br i1 %wrong, label %fail, label %start
start:
  %ended = call i32 @filled(ptr %descriptor, ptr %words, ptr %told)
  ret i32 %ended
fail:
  ret i32 -1
}

define ptr @tw_launch(ptr %self, ptr %given, i64 %number) #0 {
entry:
  %told = alloca ptr, align 8
  %descriptor = call ptr @PyLong_AsVoidPtr(ptr %self)
  %buffers = load ptr, ptr %given, align 8
  %scalars.at = getelementptr ptr, ptr %given, i64 1
  %scalars = load ptr, ptr %scalars.at, align 8
  %ended = call i32 @one(
    ptr %descriptor, ptr %buffers, ptr null, ptr %scalars, ptr null, ptr %told)
  switch i32 %ended, label %raised [
    i32 0, label %fine
    i32 1, label %wrong
  ]
fine:
  call void @Py_IncRef(ptr @_Py_NoneStruct)
  ret ptr @_Py_NoneStruct
wrong:
  %text = load ptr, ptr %told, align 8
  ret ptr %text
raised:
  ret ptr null
}

; sequence(self, slots, scalars): self is the address of a table, its length and for each launch
; (descriptor, table of slots, table of scalars). Makes the launches in order, and returns how many
; went well: the one that didn't is made again by itself, to raise its error.
define ptr @tw_sequence(ptr %self, ptr %given, i64 %number) #0 {
entry:
  %table = call ptr @PyLong_AsVoidPtr(ptr %self)
  %slots = load ptr, ptr %given, align 8
  %scalars.at = getelementptr ptr, ptr %given, i64 1
  %scalars = load ptr, ptr %scalars.at, align 8
  %count = load i64, ptr %table, align 8
  br label %loop
loop:
  %k = phi i64 [ 0, %entry ], [ %next, %listen ]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %run, label %out
run:
  %thrice = mul i64 %k, 3
  %next = add i64 %k, 1
  %first = add i64 %thrice, 1
  %second = add i64 %thrice, 2
  %third = add i64 %thrice, 3
  %descriptor.i = call i64 @word(ptr %table, i64 %first)
  %descriptor = inttoptr i64 %descriptor.i to ptr
  %used.i = call i64 @word(ptr %table, i64 %second)
  %used = inttoptr i64 %used.i to ptr
  %numbers.i = call i64 @word(ptr %table, i64 %third)
  %numbers = inttoptr i64 %numbers.i to ptr
  %ended = call i32 @one(
    ptr %descriptor, ptr %slots, ptr %used, ptr %scalars, ptr %numbers, ptr null)
  %well = icmp eq i32 %ended, 0
  br i1 %well, label %listen, label %stop
listen:
  %signal = call i32 @PyErr_CheckSignals()
  %calm = icmp eq i32 %signal, 0
  br i1 %calm, label %loop, label %interrupted
interrupted:
  ret ptr null
stop:
  call void @PyErr_Clear()
  br label %out
out:
  %done = phi i64 [ %count, %loop ], [ %k, %stop ]
  %result = call ptr @PyLong_FromLongLong(i64 %done)
  ret ptr %result
}

; The address of an array of `buffers`, and so many bytes; 0 if a Python exception is set.
define internal i64 @address(ptr %buffers, i64 %number, i64 %offset) #0 {
entry:
  %array = call ptr @PySequence_GetItem(ptr %buffers, i64 %number)
  %none = icmp eq ptr %array, null
  br i1 %none, label %fail, label %read
read:
  %data.at = getelementptr i8, ptr %array, i64 16
  %data = load i64, ptr %data.at, align 8
  call void @Py_DecRef(ptr %array)
  %found = add i64 %data, %offset
  ret i64 %found
fail:
  ret i64 0
}

; The words of a launch, before its buffers are known.
define internal void @begun(ptr %descriptor, ptr %words) alwaysinline #0 {
  %words.n = call i64 @word(ptr %descriptor, i64 2)
  %template.i = call i64 @word(ptr %descriptor, i64 9)
  %template = inttoptr i64 %template.i to ptr
  %bytes = mul i64 %words.n, 8
  call void @llvm.memcpy.p0.p0.i64(ptr %words, ptr %template, i64 %bytes, i1 false)
  ret void
}

; One launch whose buffers are at the addresses now[used[i]]. Returns what `one` does.
define internal i32 @pointed(ptr %descriptor, ptr %words, ptr %now, ptr %used) noinline #0 {
entry:
  %buffers.n = call i64 @word(ptr %descriptor, i64 3)
  %places.i = call i64 @word(ptr %descriptor, i64 6)
  %places = inttoptr i64 %places.i to ptr
  br label %loop
loop:
  %b = phi i64 [ 0, %entry ], [ %next, %set ]
  %more = icmp slt i64 %b, %buffers.n
  br i1 %more, label %set, label %out
set:
  %from = call i64 @word(ptr %used, i64 %b)
  %data = call i64 @word(ptr %now, i64 %from)
  %place = call i64 @word(ptr %places, i64 %b)
  %slot = getelementptr i64, ptr %words, i64 %place
  store i64 %data, ptr %slot, align 8
  %next = add i64 %b, 1
  br label %loop
out:
  %ended = call i32 @filled(ptr %descriptor, ptr %words, ptr null)
  ret i32 %ended
}

; One launch of a loop's step, as `pointed`.
define internal i32 @stepped(ptr %descriptor, ptr %now, ptr %used) noinline #0 {
entry:
  %words.n = call i64 @word(ptr %descriptor, i64 2)
  %words = alloca i64, i64 %words.n, align 64
  call void @begun(ptr %descriptor, ptr %words)
  %ended = call i32 @pointed(ptr %descriptor, ptr %words, ptr %now, ptr %used)
  ret i32 %ended
}

; loop(self, buffers, walk, count): makes the launches of so many steps. self is the address of a
; table: the number of launches, the number of slots, and for each launch (descriptor in the first
; step, descriptor in later ones, table of slots). walk is an array of int64 with a row for each
; slot: (number of a buffer, bytes into it) in the first step, the same in the second one, and the
; bytes by which it moves from then on.
define ptr @tw_loop(ptr %self, ptr %given, i64 %number) #0 {
entry:
  %table = call ptr @PyLong_AsVoidPtr(ptr %self)
  %buffers = load ptr, ptr %given, align 8
  %walk.at = getelementptr ptr, ptr %given, i64 1
  %array = load ptr, ptr %walk.at, align 8
  %data.at = getelementptr i8, ptr %array, i64 16
  %walk = load ptr, ptr %data.at, align 8
  %count.at = getelementptr ptr, ptr %given, i64 2
  %count.object = load ptr, ptr %count.at, align 8
  %count = call i64 @PyLong_AsUnsignedLongLongMask(ptr %count.object)
  %launches = call i64 @word(ptr %table, i64 0)
  %slots = call i64 @word(ptr %table, i64 1)
  %now = alloca i64, i64 %slots, align 8
  %second = alloca i64, i64 %slots, align 8
  br label %point
point:
  %i = phi i64 [ 0, %entry ], [ %i.next, %place.second ]
  %i.more = icmp slt i64 %i, %slots
  br i1 %i.more, label %place.first, label %step
place.first:
  %row = mul i64 %i, 5
  %row1 = add i64 %row, 1
  %row2 = add i64 %row, 2
  %row3 = add i64 %row, 3
  %number.first = call i64 @word(ptr %walk, i64 %row)
  %offset.first = call i64 @word(ptr %walk, i64 %row1)
  %at.first = call i64 @address(ptr %buffers, i64 %number.first, i64 %offset.first)
  %now.at = getelementptr i64, ptr %now, i64 %i
  store i64 %at.first, ptr %now.at, align 8
  %lost = icmp eq i64 %at.first, 0
  br i1 %lost, label %raised, label %place.second
place.second:
  %number.second = call i64 @word(ptr %walk, i64 %row2)
  %offset.second = call i64 @word(ptr %walk, i64 %row3)
  %at.second = call i64 @address(ptr %buffers, i64 %number.second, i64 %offset.second)
  %second.at = getelementptr i64, ptr %second, i64 %i
  store i64 %at.second, ptr %second.at, align 8
  %i.next = add i64 %i, 1
  br label %point
step:
  %t = phi i64 [ 0, %point ], [ %t.next, %move ]
  %is.first = icmp eq i64 %t, 0
  %t.more = icmp slt i64 %t, %count
  br i1 %t.more, label %launch, label %out
launch:
  %k = phi i64 [ 0, %step ], [ %k.next, %listen ]
  %k.more = icmp slt i64 %k, %launches
  br i1 %k.more, label %run, label %move
run:
  %thrice = mul i64 %k, 3
  %own.first = add i64 %thrice, 2
  %own.later = add i64 %thrice, 3
  %own.used = add i64 %thrice, 4
  %own = select i1 %is.first, i64 %own.first, i64 %own.later
  %descriptor.i = call i64 @word(ptr %table, i64 %own)
  %descriptor = inttoptr i64 %descriptor.i to ptr
  %used.i = call i64 @word(ptr %table, i64 %own.used)
  %used = inttoptr i64 %used.i to ptr
  %ended = call i32 @stepped(ptr %descriptor, ptr %now, ptr %used)
  %k.next = add i64 %k, 1
  %well = icmp eq i32 %ended, 0
  br i1 %well, label %listen, label %raised
listen:
  %signal = call i32 @PyErr_CheckSignals()
  %calm = icmp eq i32 %signal, 0
  br i1 %calm, label %launch, label %raised
move:
  %m = phi i64 [ 0, %launch ], [ %m.next, %moved ]
  %t.next = add i64 %t, 1
  %m.more = icmp slt i64 %m, %slots
  br i1 %m.more, label %moved, label %step
moved:
  %m.row = mul i64 %m, 5
  %m.row4 = add i64 %m.row, 4
  %by = call i64 @word(ptr %walk, i64 %m.row4)
  %was = call i64 @word(ptr %now, i64 %m)
  %further = add i64 %was, %by
  %again = call i64 @word(ptr %second, i64 %m)
  %then = select i1 %is.first, i64 %again, i64 %further
  %then.at = getelementptr i64, ptr %now, i64 %m
  store i64 %then, ptr %then.at, align 8
  %m.next = add i64 %m, 1
  br label %move
out:
  call void @Py_IncRef(ptr @_Py_NoneStruct)
  ret ptr @_Py_NoneStruct
raised:
  ret ptr null
}
"""

PYTHON_SYMBOLS = (
    "PySequence_GetItem", "PyLong_AsVoidPtr", "PyLong_AsUnsignedLongLongMask", "PyNumber_Long",
    "PyFloat_AsDouble", "PyObject_IsTrue", "PyErr_Occurred", "PyBytes_FromStringAndSize",
    "PyEval_SaveThread", "PyEval_RestoreThread", "Py_IncRef", "Py_DecRef", "PyErr_NoMemory",
    "PyMem_RawMalloc", "PyMem_RawFree", "PyErr_Clear", "PyErr_CheckSignals", "PyLong_FromLongLong",
    "PyObject_Vectorcall",
)  # fmt: skip
