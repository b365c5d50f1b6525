# The wheel's compiler: clang with libc++ from the ziglang package, which links against an older glibc than this
# machine's, so that the wheel runs wherever glibc is at least as new (2.28: RHEL 8, Debian 10, Ubuntu 20.04).
# Headers of third parties come from /usr/include, and this machine's newer glibc headers with them: what
# glibc 2.28 lacks fails to link, and tools/check_wheel.py reads the versions from the finished files.
# libc++ is linked statically and stays hidden: nothing of it meets the libstdc++ that torch loads.
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES Python_EXECUTABLE)
execute_process(
  COMMAND
    ${Python_EXECUTABLE} -c "import pathlib, ziglang; print(pathlib.Path(ziglang.__file__).parent)"
  OUTPUT_STRIP_TRAILING_WHITESPACE
  OUTPUT_VARIABLE corro_zig_dir
  COMMAND_ERROR_IS_FATAL ANY
)
set(corro_target ${CMAKE_HOST_SYSTEM_PROCESSOR}-linux-gnu.2.28)
set(CMAKE_C_COMPILER ${corro_zig_dir}/zig cc -target ${corro_target})
set(CMAKE_CXX_COMPILER ${corro_zig_dir}/zig c++ -target ${corro_target})
# zig keeps a cache of its own, and ccache does not know it.
set(CMAKE_C_COMPILER_LAUNCHER "")
set(CMAKE_CXX_COMPILER_LAUNCHER "")
# Debian's Python.h includes <x86_64-linux-gnu/python3.11/pyconfig.h>.
set(CMAKE_CXX_FLAGS_INIT "-idirafter /usr/include")
# zig does not report the distribution's folders as its own.
list(APPEND CMAKE_PREFIX_PATH /usr/lib/${CMAKE_HOST_SYSTEM_PROCESSOR}-linux-gnu/cmake)
list(APPEND CMAKE_LIBRARY_PATH /usr/lib/${CMAKE_HOST_SYSTEM_PROCESSOR}-linux-gnu)
set(CMAKE_EXE_LINKER_FLAGS_INIT -s)
set(CMAKE_SHARED_LINKER_FLAGS_INIT -s)
set(CMAKE_MODULE_LINKER_FLAGS_INIT -s)
