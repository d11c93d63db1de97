"""Names of the model as C identifiers and comment text. Everything that comes from a model file is hostile here."""

import re

_KEYWORDS = frozenset({
    "alignas", "alignof", "and", "and_eq", "asm", "auto", "bitand", "bitor", "bool", "break", "case", "catch", "char",
    "char16_t", "char32_t", "char8_t", "class", "co_await", "co_return", "co_yield", "compl", "concept", "const",
    "const_cast", "consteval", "constexpr", "constinit", "continue", "decltype", "default", "delete", "do", "double",
    "dynamic_cast", "else", "enum", "explicit", "export", "extern", "false", "far", "final", "float", "for", "friend",
    "goto", "if", "import", "inline", "int", "interface", "long", "main", "module", "mutable", "namespace", "near",
    "new", "noexcept", "not", "not_eq", "nullptr", "operator", "or", "or_eq", "override", "private", "protected",
    "public", "reflexpr", "register", "reinterpret_cast", "requires", "restrict", "return", "short", "signed",
    "sizeof", "static", "static_assert", "static_cast", "struct", "switch", "synchronized", "template", "this",
    "thread_local", "throw", "true", "try", "typedef", "typeid", "typename", "typeof", "union", "unsigned", "using",
    "virtual", "void", "volatile", "wchar_t", "while", "xor", "xor_eq",
})  # fmt: skip
"""Of C and C++."""
_HEADERS = frozenset({
    "alloca", "arduino", "arm_acle", "arm_math", "arm_mve", "arm_neon", "arm_nnfunctions", "assert", "autoconf",
    "binary", "client", "cmsis_compiler", "cmsis_gcc", "complex", "cpio", "ctype", "device", "dirent", "dlfcn",
    "emitc", "emitc_board", "emitc_runtime", "endian", "errno", "fcntl", "features", "fenv", "float", "fmtmsg",
    "fnmatch", "freertos", "ftw", "glob", "grp", "iconv", "inttypes", "iso646", "itoa", "kernel", "langinfo",
    "libgen", "library", "limits", "list", "locale", "math", "memory", "monetary", "netdb", "new", "newlib",
    "pgmspace", "picolibc", "poll", "portmacro", "print", "printable", "pthread", "pwd", "queue", "regex", "sched",
    "sdkconfig", "search", "semaphore", "server", "setjmp", "signal", "spawn", "spi", "stdalign", "stdarg",
    "stdatomic", "stdbit", "stdbool", "stdckdint", "stddef", "stdint", "stdio", "stdlib", "stdnoreturn", "stream",
    "string", "strings", "syslimits", "syslog", "tar", "task", "termios", "tgmath", "threads", "time", "timers",
    "uchar", "ucontext", "udp", "ulimit", "unistd", "utime", "utmpx", "values", "wchar", "wctype", "wire", "wordexp",
    "zephyr",
})  # fmt: skip
"""NAME.h exists in a C library, a toolchain or a framework, and a package's own would be found in its place."""
_TYPES = frozenset({
    "blkcnt", "blksize", "bool", "byte", "caddr", "char16", "char32", "char8", "clock", "clockid", "cnd", "daddr",
    "dev", "div", "double", "errno", "fenv", "fexcept", "float", "fpos", "fsid", "gid", "id", "imaxdiv", "ino",
    "int16", "int32", "int64", "int8", "int_fast16", "int_fast32", "int_fast64", "int_fast8", "int_least16",
    "int_least32", "int_least64", "int_least8", "intmax", "intptr", "jmp_buf", "key", "ldiv", "lldiv", "locale",
    "loff", "max_align", "mbstate", "mode", "mtx", "nlink", "nullptr", "off", "off64", "once", "pid", "ptrdiff",
    "quad", "regex", "register", "regoff", "rsize", "sa_family", "sem", "sig_atomic", "sigset", "size", "socklen",
    "ssize", "stack", "suseconds", "thrd", "time", "timer", "tss", "uid", "uint16", "uint32", "uint64", "uint8",
    "uint_fast16", "uint_fast32", "uint_fast64", "uint_fast8", "uint_least16", "uint_least32", "uint_least64",
    "uint_least8", "uintmax", "uintptr", "useconds", "va_list", "wchar", "wctrans", "wctype", "wint", "word",
})  # fmt: skip
"""NAME_t is a type of C or POSIX."""
_MACROS = frozenset({
    "abs", "arm", "assert", "avr", "bit", "complex", "constrain", "emit", "environ", "foreach", "hpux", "hyper",
    "i386", "imaginary", "linux", "max", "min", "mips", "pixel", "powerpc", "riscv", "round", "signals", "slots",
    "small", "sparc", "sq", "stderr", "stdin", "stdout", "sun", "unix", "vax", "vector",
})  # fmt: skip
"""Macros in small letters that compilers and frameworks define."""
_TAKEN = _KEYWORDS | _HEADERS | _TYPES | _MACROS
_OURS = ("emitc_", "pthread_")
"""Prefixes of names that the kernels, the runtime or the system use."""
_LONGEST = 48


def identifier(text: str, fallback: str) -> str:
    """`text` as a C identifier in lower case: ASCII letters, digits and single underscores, at most 48 characters.

    `fallback` serves where nothing is left; a name that means something else in C gets the suffix `_model`. Without a
    fallback the text becomes a part of a longer name: any word will do, and one that begins with a digit gets an n.

    >>> identifier('*/ int8 "x"', 'model'), identifier('3d', 'model'), identifier('while', 'model')
    ('int8_x', 'model_3d', 'while_model')
    >>> identifier('while', ''), identifier('3d', '')
    ('while', 'n3d')
    """
    name = re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")[:_LONGEST].strip("_")
    if not name:
        return fallback
    if name[0].isdigit():
        name = f"{fallback}_{name}" if fallback else f"n{name}"
    return f"{name}_model" if fallback and _is_taken(name) else name


def _is_taken(name: str) -> bool:
    """Whether a name in small letters means something to a C compiler, its library, or the code around it."""
    return name in _TAKEN or name.startswith(_OURS)


def is_model_name(text: str) -> bool:
    """Whether a user may call the model so: a C identifier that shadows nothing.

    >>> is_model_name('kws'), is_model_name('string'), is_model_name('size'), is_model_name('a__b'), is_model_name('9')
    (True, False, False, False, False)
    """
    plain = re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,62}", text) is not None
    return plain and "__" not in text and not text.endswith("_") and not _is_taken(text.lower())


def unique(name: str, taken: set[str]) -> str:
    """`name`, with a number where it is taken; the result is added to `taken`."""
    candidate, count = name, 1
    while candidate in taken:
        count += 1
        candidate = f"{name}_{count}"
    taken.add(candidate)
    return candidate


def comment_text(text: str, limit: int = 120) -> str:
    """`text` as harmless content of a C comment: printable ASCII, no comment marks, no trigraphs, no backslash.

    >>> comment_text('a*/ b//c ??/')
    'a_/ b/_c ?_/'
    """
    plain = "".join(c if " " <= c <= "~" and c != "\\" else "_" for c in text)
    plain = plain.replace("*/", "_/").replace("/*", "/_").replace("//", "/_").replace("??", "?_")
    return plain if len(plain) <= limit else plain[: limit - 3] + "..."


def string_text(text: str, limit: int = 120) -> str:
    """`text` as harmless content of a C or JSON string: `comment_text` without quotes."""
    return comment_text(text, limit).replace('"', "'")
