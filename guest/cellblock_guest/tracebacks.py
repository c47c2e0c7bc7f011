"""Which frames are the user's, which are ours; what the file of a cell's code is called, for frames, frontends and
debuggers; what a reply says of an error.
"""

import os
from struct import unpack_from

SEED = 0xC70F6907
CELL_SUFFIX = ".py"
_HERE = __file__.rpartition("/")[0]
_HANDLER = _HERE + "/interrupts.py"
_TOOLS = _HERE + "/hosttools.py"
_BETWEEN = (_HERE + "/allowed_imports.py", _HERE + "/context.py")
_COMPILED = ("_pydevd", "<stringsource>")  # of the debugger's
_folder = None


def cell_file_name(code):
    """The file name of a cell's code, as ipykernel and the debugger's frontend compute it."""
    name = os.environ.get("IPYKERNEL_CELL_NAME")
    return name or "%s/%d%s" % (cell_folder(), murmur2(code.encode("utf-8", "surrogatepass"), SEED), CELL_SUFFIX)


def cell_folder():
    """Named after the process that asks first, the guest when it starts: frontends ask once, and copies of that process
    go on with its cells."""
    global _folder
    if _folder is None:
        # not always /tmp: without a mount namespace that is the host's
        _folder = "%s/ipykernel_%d" % (os.path.abspath(os.environ.get("TMPDIR") or "/tmp"), os.getpid())
    return _folder


def forget_folder():
    """In a copy of a zygote, which is another process."""
    global _folder
    _folder = None


def murmur2(data, seed):
    """MurmurHash2, 32 bits."""
    length, mask, m = len(data), 0xFFFFFFFF, 0x5BD1E995
    h = seed ^ length
    words = length >> 2
    for k in unpack_from("<%dI" % words, data):
        k = k * m & mask
        k = (k ^ k >> 24) * m & mask
        h = h * m & mask ^ k
    tail = data[words << 2 :]
    if tail:
        h = (h ^ int.from_bytes(tail, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15


def own_folder():
    return _HERE


def is_own_file(path):
    return path.startswith(_HERE)


def own_frames_off(tb):
    """The traceback of user code: frames of this package at its beginning, and at its end those of the handler that
    raised a KeyboardInterrupt, of ours that it met, and of a debugger that had stopped there, are nobody's concern;
    nor are those, anywhere, of what looks at each import, runs a pool's work, or calls a handler of the user's."""
    while tb is not None and tb.tb_next is not None and is_own_file(tb.tb_frame.f_code.co_filename):
        tb = tb.tb_next
    users = at = tb
    while at is not None and at.tb_next is not None:
        if at.tb_next.tb_frame.f_code.co_filename in _BETWEEN:
            at.tb_next = at.tb_next.tb_next
            continue
        at = at.tb_next
        path = at.tb_frame.f_code.co_filename
        if path == _HANDLER and (later := _after_own(at)) is not None:
            users.tb_next = users = at = later
            continue
        if path in (_HANDLER, _TOOLS) or "/debugpy/_vendored/" in path or path.startswith(_COMPILED):
            users.tb_next = None
            break
        if not is_own_file(path):
            users = at
    return tb


def _after_own(tb):
    while tb is not None and is_own_file(tb.tb_frame.f_code.co_filename):
        tb = tb.tb_next
    return tb


def error_content(e, more=None):
    content = {"status": "error", "ename": type(e).__name__, "evalue": safe_str(e), "traceback": []}
    content.update(more or {})
    return content


def brief_traceback(e):
    """No code of the user's runs for it."""
    import traceback

    frames = [each for each in traceback.extract_tb(e.__traceback__) if not is_own_file(each.filename)]
    name = type(e).__name__
    return ["Traceback (most recent call last):", *traceback.format_list(frames), name] if frames else [name]


def safe_str(e):
    try:
        return str(e)
    except Exception:
        return "<no text: str() failed>"
