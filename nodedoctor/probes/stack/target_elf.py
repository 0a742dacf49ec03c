"""Read of a shared object what the dynamic loader reads, and the constants in it, without loading it.

A part of target_python.py: runs in the target interpreter, Python 3.7, standard library only. Only 64-bit
objects are read, GPU nodes have no others. Formats: elf(5).
"""

from __future__ import annotations

import io
import os
import re
import struct

RODATA_BYTES = (
    64 * 1024 * 1024
)  # libtorch_cuda.so of torch 2.9 has 7.1 MiB of constants, libnccl.so 2.28 0.2 MiB
STRING_BYTES = 16 * 1024
DYNAMIC_BYTES = 64 * 1024
NAMES_BYTES = 1024 * 1024
SYMBOL_BYTES = 64 * 1024 * 1024  # libtorch_cuda.so of torch 2.9: 2 MiB of entries, 12 MiB of names
SHT_DYNSYM, STB_WEAK = 11, 2
PT_LOAD, PT_DYNAMIC, WRITABLE = 1, 2, 2
DT_NEEDED, DT_STRTAB, DT_SONAME, DT_RPATH, DT_RUNPATH = 1, 5, 14, 15, 29

# "NCCL version 2.20.5+cuda12.4"; "NCCL version 2.28.9 compiled with CUDA 13.0" beside it in newer ones
NCCL_BANNER = re.compile(rb"NCCL version (\d+\.\d+\.\d[\w.]*)(?:\+cuda| compiled with CUDA )(\d+\.\d+)")
ARCH_FLAGS = re.compile(rb"(?:(?:sm|compute)_\d{2,3}[af]?[ ;]?)+(?=\0)")


class Elf:
    """A shared object: `kind` is its class, byte order and machine, `rodata` where its constants are."""

    def __init__(self, path: str, kind: bytes = b"") -> None:
        self.path = path
        self.kind = kind
        self.soname = ""
        self.needed: list[str] = []
        self.rpath: list[str] = []
        self.runpath: list[str] = []
        self.rodata: list[tuple[int, int]] = []  # (offset, size) in the file


def read_elf(path: str) -> Elf | None:
    """The loader's view of a file; None for what it would skip: unreadable, not ELF, 32 bit, cut off."""
    try:
        with _open_file(path) as file:
            return _parse_elf(file.fileno(), path)
    except (OSError, struct.error, ValueError, OverflowError, MemoryError):
        return None


def nccl_version(elf: Elf) -> tuple[str, str]:
    """The NCCL version and the CUDA it was built with, from NCCL's own banner; empty when there is none."""
    match = NCCL_BANNER.search(_read_constants(elf))
    return (match.group(1).decode(), match.group(2).decode()) if match else ("", "")


def arch_list(libtorch_python: str) -> list[str]:
    """What torch.cuda.get_arch_list() would say: the flags compiled into libtorch_python.so."""
    elf = read_elf(libtorch_python)
    texts = set(ARCH_FLAGS.findall(_read_constants(elf))) if elf else set()
    longest = max(map(len, texts), default=0)
    telling = [text for text in texts if len(text) == longest]
    return telling[0].decode().replace(";", " ").split() if len(telling) == 1 else []


def symbols(path: str, prefix: bytes, defined: bool) -> set[str] | None:
    """Names in the dynamic symbol table that begin so: those an object defines, or those it needs.

    None when there is no table to read.
    """
    try:
        with _open_file(path) as file:
            return _read_symbols(file.fileno(), prefix, defined)
    except (OSError, struct.error, ValueError, OverflowError, MemoryError):
        return None


def _read_symbols(fd: int, prefix: bytes, defined: bool) -> set[str] | None:
    head = os.pread(fd, 64, 0)
    if head[:5] != b"\x7fELF\x02":
        return None
    order = "<" if head[5] == 1 else ">"
    size, count = struct.unpack_from(order + "HH", head, 58)
    table = os.pread(fd, size * count, struct.unpack_from(order + "Q", head, 40)[0])
    sections = [
        struct.unpack_from(order + "IIQQQQI", table, at) for at in range(0, len(table) - 43, size or 64)
    ]
    for section in sections:
        if section[1] == SHT_DYNSYM and section[6] < len(sections):
            entries = os.pread(fd, min(section[5], SYMBOL_BYTES), section[4])
            names_at, names_size = sections[section[6]][4:6]
            names = os.pread(fd, min(names_size, SYMBOL_BYTES), names_at)
            return _matching_symbols(order, entries, names, prefix, defined)
    return None


def _matching_symbols(order: str, entries: bytes, names: bytes, prefix: bytes, defined: bool) -> set[str]:
    symbols = set()
    size = len(entries) // 24 * 24
    for at, info, _, section, _, _ in struct.iter_unpack(order + "IBBHQQ", entries[:size]):
        optional = section == 0 and info >> 4 == STB_WEAK
        if (section != 0) == defined and not optional and names.startswith(prefix, at):
            symbols.add(names[at : names.find(b"\0", at)].decode("utf-8", "replace"))
    return symbols


def _open_file(path: str) -> io.FileIO:
    # Without blocking: a named pipe in a library folder would wait for its writer.
    return open(path, "rb", buffering=0, opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))


def _read_constants(elf: Elf) -> bytes:
    try:
        with _open_file(elf.path) as file:
            parts = [os.pread(file.fileno(), min(size, RODATA_BYTES), at) for at, size in elf.rodata[:4]]
    except (OSError, OverflowError, MemoryError):
        return b""
    return b"\0".join(parts)


def _parse_elf(fd: int, path: str) -> Elf | None:
    head = os.pread(fd, 64, 0)
    if len(head) < 64 or head[:5] != b"\x7fELF\x02":
        return None
    order = "<" if head[5] == 1 else ">"
    elf = Elf(path, head[4:6] + head[18:20])
    phoff, shoff = struct.unpack_from(order + "QQ", head, 32)
    phsize, phnum, shsize, shnum, names_at = struct.unpack_from(order + "HHHHH", head, 54)
    table = os.pread(fd, phsize * phnum, phoff)
    segments = [struct.unpack_from(order + "IIQQQQ", table, i * phsize) for i in range(phnum)]
    loads = [(address, at, size) for kind, _, at, address, _, size in segments if kind == PT_LOAD]
    for kind, _, at, _, _, size in segments:
        if kind == PT_DYNAMIC:
            _read_dynamic(fd, elf, order, os.pread(fd, min(size, DYNAMIC_BYTES), at), loads)
    elf.rodata = _rodata_sections(
        order, os.pread(fd, shsize * shnum, shoff) if shoff else b"", shsize, names_at, fd
    )
    if not elf.rodata:  # stripped of section headers: all that is loaded and not writable
        read_only = [part for part in segments if part[0] == PT_LOAD and not part[1] & WRITABLE]
        elf.rodata = [(part[2], part[5]) for part in read_only]
    return elf


def _read_dynamic(fd: int, elf: Elf, order: str, table: bytes, loads: list[tuple[int, int, int]]) -> None:
    entries = [struct.unpack_from(order + "QQ", table, at) for at in range(0, len(table) - 15, 16)]
    address = next((value for tag, value in entries if tag == DT_STRTAB), 0)
    strings = [at + address - start for start, at, size in loads if 0 <= address - start < size]
    for tag, value in entries if strings else []:
        if tag not in (DT_NEEDED, DT_SONAME, DT_RPATH, DT_RUNPATH):
            continue
        text = os.pread(fd, STRING_BYTES, strings[0] + value).split(b"\0")[0].decode("utf-8", "replace")
        if tag == DT_NEEDED:
            elf.needed.append(text)
        elif tag == DT_SONAME:
            elf.soname = text
        elif tag == DT_RPATH:
            elf.rpath = _rpath_folders(text, elf.path)
        else:
            elf.runpath = _rpath_folders(text, elf.path)


def _rpath_folders(search_path: str, object_path: str) -> list[str]:
    """The folders of an RPATH; $ORIGIN is the folder the object was found in, symbolic links kept."""
    origin = os.path.dirname(os.path.abspath(object_path))
    for word, value in (("ORIGIN", origin), ("LIB", "lib64"), ("PLATFORM", "x86_64")):
        search_path = search_path.replace("${" + word + "}", value).replace("$" + word, value)
    return [os.path.normpath(folder) for folder in search_path.split(":") if folder]


def _rodata_sections(order: str, table: bytes, size: int, names_at: int, fd: int) -> list[tuple[int, int]]:
    starts = range(0, len(table) - size + 1, size or 1)
    sections = [struct.unpack_from(order + "IIQQQQ", table, at) for at in starts]
    if not 0 <= names_at < len(sections):
        return []
    names = os.pread(fd, min(sections[names_at][5], NAMES_BYTES), sections[names_at][4])
    return [(part[4], part[5]) for part in sections if names[part[0] : part[0] + 8] == b".rodata\0"]
