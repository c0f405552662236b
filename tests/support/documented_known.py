"""The examples of PyTorch's documentation that give something else in tilewright, by reason.

Each line names a docstring and the numbers of its examples, counted from 0.
"""

from __future__ import annotations

_DIFFERENCES = {
    "Other draws: generators here count, and PyTorch's are Mersenne twisters.": """
        torch.Generator.get_state 1
        torch.linalg.solve 8
        torch.masked_select 4
        torch.multinomial 1
        torch.nn.CrossEntropyLoss 13 14 15 17 19
        torch.nn.modules.batchnorm.LazyModuleMixin 10
    """,
    "A device that is missing is refused when it is named, and not at its first tensor.": """
        torch.set_default_device 1 2 3 5 6 7
    """,
    "Memory is in the order of the dimensions, whatever memory format is asked.": """
        torch.Tensor.dim_order 2
    """,
    "Conjugates and negatives are computed: no view stands for them.": """
        torch.conj 3
        torch.resolve_conj 2
        torch.resolve_neg 3
    """,
    "The sign of an imaginary part of zero.": """
        torch.fft.hfft 3
        torch.fft.ihfft 3
    """,
    "Rounding: an elimination leaves a pivot that isn't quite zero, or a more exact solution.": """
        torch.linalg.lu_factor 6
    """,
    "Sorting is stable, also where PyTorch's needn't be.": """
        torch.sort 8
    """,
    "Sizes are numbers, where PyTorch has symbols for ragged ones.": """
        torch.nested.masked_select 3 8
    """,
    "Strided nested tensors with several ragged dimensions.": """
        torch.nested.to_padded_tensor 0
    """,
    "PyTorch accepts sizes for two dimensions in a layer of one.": """
        torch.ao.nn.quantized.ConvTranspose1d 3 14
    """,
    "Graphs of torch.fx call functions of torch, and nothing is functionalized in them.": """
        torch.func.functionalize 11 12 13 16
    """,
    "Python is replayed, not compiled: what PyTorch's compiler refuses or leaves out works.": """
        torch.compiler.substitute_in_graph 2
        torch.utils.debug_log.leaf_function 2 16 19
    """,
    "The name of a gradient: a sparse product is a sum of rows here.": """
        torch.sparse.mm 11 13
    """,
    "Signatures have types, and further arguments.": """
        torch.overrides.get_testing_overrides 2
    """,
    "PyTorch's compiler has registered classes that files may hold.": """
        torch.serialization.safe_globals 4
    """,
    "PyTorch fails earlier, at what the example didn't define.": """
        torch.cuda.gds.GdsFile 2
        torch.hub.load 3
    """,
    "Extensions in C++ are written against PyTorch's own headers.": """
        torch.utils.cpp_extension.CUDAExtension 2 3
        torch.utils.cpp_extension.CppExtension 2
        torch.utils.cpp_extension.load 1
    """,
    "Devices of other packages register with PyTorch's dispatcher.": """
        torch.utils.generate_methods_for_privateuse1_backend 0 1 2 4
        torch.utils.rename_privateuse1_backend 0 1
    """,
}

KNOWN = {
    (name, int(number)): reason
    for reason, lines in _DIFFERENCES.items()
    for name, *numbers in map(str.split, lines.strip().splitlines())
    for number in numbers
}
"""(docstring, number of the example) -> the reason."""
