"""The source of what stands for a module that an archive leaves out."""

from __future__ import annotations

OBJECT = '''"""Objects of modules that this archive leaves out: using one is an error."""


class MockedObject:
    def __init__(self, name, _suppress_err):
        self.__dict__["_name"] = name
        if not _suppress_err:
            _refuse(name, "__init__")

    def __new__(cls, *args, **kwargs):
        if not kwargs.get("_suppress_err"):  # a class was derived from one
            _refuse(cls, "__new__")
        return super().__new__(cls)

    def __repr__(self):
        return f"MockedObject({self._name})"

    def __getattr__(self, name):
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return MockedObject(f"{self._name}.{name}", _suppress_err=True)


def _refuse(name, use):
    raise NotImplementedError(
        f"Object '{name}' was mocked out during packaging but it is being used in {use}"
    )


def _refusing(use):
    def method(self, *args, **kwargs):
        _refuse(self._name, use)

    return method


for _use in """
    add sub mul truediv floordiv mod pow matmul and or xor lshift rshift divmod
    radd rsub rmul rtruediv rfloordiv rmod rpow rmatmul rand ror rxor rlshift rrshift
    iadd isub imul itruediv ifloordiv imod ipow imatmul iand ior ixor ilshift irshift
    neg pos abs invert int float complex index round bool len iter next contains
    lt le gt ge eq ne hash call getitem setitem delitem setattr delattr enter exit
    instancecheck subclasscheck
""".split():
    setattr(MockedObject, f"__{_use}__", _refusing(f"__{_use}__"))
'''

MODULE = """from _mock import MockedObject


def __getattr__(attr: str):
    return MockedObject(__name__ + "." + attr, _suppress_err=True)
"""
