"""Ranks whose private memory stays private: what other programs of the tests begin with."""

# Forbids process_vm_readv to the ranks of FORBIDDEN, as containers do.
FORBID = """
import ctypes, errno, os, platform

NUMBER = {"x86_64": 310, "aarch64": 270}[platform.machine()]
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06  # of the syscall's number; jumps; a verdict

class Step(ctypes.Structure):
    _fields_ = [("code", ctypes.c_ushort), ("yes", ctypes.c_ubyte), ("no", ctypes.c_ubyte),
                ("value", ctypes.c_uint)]

class Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("steps", ctypes.POINTER(Step))]

if os.environ["RANK"] in os.environ["FORBIDDEN"]:
    libc = ctypes.CDLL(None, use_errno=True)
    steps = (Step * 4)((LOAD, 0, 0, 0), (EQUAL, 0, 1, NUMBER),
                       (RETURN, 0, 0, 0x50000 | errno.EPERM), (RETURN, 0, 0, 0x7FFF0000))
    assert libc.prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
    assert libc.prctl(22, 2, ctypes.byref(Filter(4, steps)), 0, 0) == 0, ctypes.get_errno()
    assert libc.process_vm_readv(os.getpid(), None, 0, None, 0, 0) == -1
    assert ctypes.get_errno() == errno.EPERM
"""
