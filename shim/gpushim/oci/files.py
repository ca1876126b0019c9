"""Reading and writing small files whole, without importing os."""

from __future__ import annotations

import posix


def read_small(path: str, limit: int) -> bytes:
    """The content of a file of at most `limit` bytes.

    Opened without blocking, so that a FIFO in its place cannot hang a create. Raises OSError, with
    EFBIG for a file that is larger.
    """
    descriptor = posix.open(path, posix.O_RDONLY | posix.O_CLOEXEC | posix.O_NONBLOCK)
    try:
        return read_descriptor(descriptor, limit)
    finally:
        posix.close(descriptor)


def read_descriptor(descriptor: int, limit: int) -> bytes:
    """The rest of what an open file holds; OSError(EFBIG) if that is more than `limit` bytes."""
    # Files of /proc tell no size, so it is only where to begin.
    block = min(max(posix.fstat(descriptor).st_size, 4096), limit) + 1
    pieces: list[bytes] = []
    size = 0
    while True:
        piece = posix.read(descriptor, block)
        if not piece:
            return b"".join(pieces)
        pieces.append(piece)
        size += len(piece)
        if size > limit:
            raise OSError(27, "File too large")


def write_whole(path: str, data: bytes, mode: int, owner: tuple[int, int] | None = None) -> None:
    """Writes a file beside `path` and renames it there, so that nobody ever sees half of it.

    owner: uid and gid, if they are not to be the caller's. Raises OSError; then `path` is as it
    was.
    """
    temporary = f"{path}.tmp{posix.getpid()}"
    flags = posix.O_WRONLY | posix.O_CREAT | posix.O_EXCL | posix.O_CLOEXEC | posix.O_NOFOLLOW
    try:
        descriptor = posix.open(temporary, flags, mode)
    except FileExistsError:
        # A process of this number was killed here before.
        posix.unlink(temporary)
        descriptor = posix.open(temporary, flags, mode)
    try:
        try:
            view = memoryview(data)
            while view:
                view = view[posix.write(descriptor, view) :]
            posix.fchmod(descriptor, mode)
            if owner is not None and owner != (posix.geteuid(), posix.getegid()):
                posix.fchown(descriptor, *owner)
        finally:
            posix.close(descriptor)
        posix.replace(temporary, path)
    except OSError:
        try:
            posix.unlink(temporary)
        except OSError:
            pass
        raise


def make_directories(path: str, mode: int = 0o755) -> None:
    """Makes a directory and those above it, as far as they are missing, whatever the umask is."""
    try:
        posix.mkdir(path, mode)
    except FileExistsError:
        return
    except FileNotFoundError:
        make_directories(path.rpartition("/")[0], mode)
        try:
            posix.mkdir(path, mode)
        except FileExistsError:
            return  # another create was faster
    posix.chmod(path, mode)


def real_path(path: str) -> str:
    """`path` without symbolic links, as far as it exists; what does not is kept as it is."""
    if not path.startswith("/"):
        path = f"{posix.getcwd()}/{path}"
    rest = ""
    while path:
        try:
            descriptor = posix.open(path, posix.O_PATH | posix.O_CLOEXEC)
        except OSError:
            path, _, name = path.rstrip("/").rpartition("/")
            rest = f"/{name}{rest}"
            continue
        try:
            found = posix.readlink(f"/proc/self/fd/{descriptor}")
        finally:
            posix.close(descriptor)
        return found.rstrip("/") + rest or "/"
    return rest or "/"


def digest_of(data: bytes) -> str:
    """BLAKE2b of `data` in hexadecimal (RFC 7693), 32 bytes.

    From the interpreter's own module: hashlib loads OpenSSL, and the SHA-256 that comes without it
    takes 20 ms for a large spec.
    """
    from _blake2 import blake2b

    return blake2b(data, digest_size=32).hexdigest()
