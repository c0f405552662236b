"builtin.module"() ({
  "twk.kernel"() <{sym_name = "softmax_row"}> ({
    %p = "twk.parallel"() {name = "p", extent = 5 : i64} : () -> index
    %r = "twk.reduction"() {name = "r", extent = 9 : i64} : () -> index
    %y = "twk.buffer"() {name = "y"} : () -> memref<45xf32>
    %z = "twk.buffer"() {name = "z"} : () -> memref<5xf32>
    %x = "twk.buffer"() {name = "x"} : () -> memref<45xf32>
    %v0 = "twk.load"(%x, %p, %r) {at = affine_map<(p, r) -> (p * 9 + r)>} : (memref<45xf32>, index, index) -> f32
    %v1 = "twk.reduce"(%v0, %r) {op = "max"} : (f32, index) -> f32 loc("/home/me/train.py":31:0)
    %v2 = "twk.load"(%x, %p, %r) {at = affine_map<(p, r) -> (p * 9 + r)>} : (memref<45xf32>, index, index) -> f32
    %v3 = "twk.apply"(%v2, %v1) {op = "sub"} : (f32, f32) -> f32 loc("/home/me/train.py":31:0)
    %v4 = "twk.apply"(%v3) {op = "exp"} : (f32) -> f32
    %v5 = "twk.reduce"(%v4, %r) {op = "sum"} : (f32, index) -> f32
    %v6 = "twk.apply"(%v4, %v5) {op = "div"} : (f32, f32) -> f32
    %v7 = "twk.apply"(%v5) {op = "log"} : (f32) -> f32
    %v8 = "twk.apply"(%v7, %v1) {op = "add"} : (f32, f32) -> f32
    "twk.store"(%v6, %y, %p, %r) {at = affine_map<(p, r) -> (p * 9 + r)>} : (f32, memref<45xf32>, index, index) -> ()
    "twk.store"(%v8, %z, %p) {at = affine_map<(p) -> (p)>} : (f32, memref<5xf32>, index) -> ()
  }) : () -> () loc(fused["max"("/home/me/train.py":31:0), "sub"("/home/me/train.py":31:0), "exp"("model.py":2:0), "exp"("model.py":9:0)])
}) : () -> ()
