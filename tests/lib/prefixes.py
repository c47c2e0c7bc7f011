"""Makes a Python of its own in a folder, as conda does, without conda. Used by tests/jail and tests/matrix."""

import os
import shutil
import subprocess

ASK = """import os, sys, sysconfig
print(os.path.dirname(os.__file__))
print(sysconfig.get_config_var('LDLIBRARY') if sysconfig.get_config_var('Py_ENABLE_SHARED') else '')
print(sysconfig.get_config_var('LIBDIR'))
print(os.path.realpath(sys.executable))"""


def conda_like(prefix, base="/usr/bin/python3"):
    """A prefix of its own, with all that is in it as real files, and programs that find their library beside them."""
    library, shared, where, program = subprocess.check_output([base, "-Ic", ASK], text=True).split("\n")[:4]
    name = os.path.basename(library)
    left_out = shutil.ignore_patterns("test", "idlelib", "lib2to3", "config-*", "*-packages")
    shutil.copytree(library, prefix / "lib" / name, ignore=left_out)
    (prefix / "lib" / name / "site-packages").mkdir()
    for folder in ("bin", "conda-meta"):
        (prefix / folder).mkdir()
    with open(program, "rb") as f:
        code = f.read()
    if shared and f"\0{where}\0".encode() in code:  # its RUNPATH; "$ORIGIN/.." must not be longer
        for file in os.listdir(where):
            if file.startswith(shared):
                shutil.copy(os.path.join(where, file), prefix / "lib" / file, follow_symlinks=False)
        code = code.replace(f"\0{where}\0".encode(), b"\0" + b"$ORIGIN/../lib".ljust(len(where), b"\0") + b"\0")
    (prefix / "bin" / name).write_bytes(code)
    (prefix / "bin" / name).chmod(0o755)
    (prefix / "bin/python").symlink_to(name)
    (prefix / "conda-meta/history").write_text("")
    return prefix / "bin/python"
