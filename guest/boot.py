"""What the jail starts: PYTHON /run/cellblock/guest/boot.py [bash]. Finds its package, gives sys.path back to the
user, serves cells of Python, or of bash.

Runs inside the jail and is not trusted. Fds: 0 /dev/null, 1 and 2 pipes, 3 the wire, 4 the log. With CELLBLOCK_ZYGOTE
it waits until it is copied into a jail (zygote.py): these fds are nothing until then.
"""

import gc
import os
import sys

gc.disable()  # nothing that is imported now is garbage; main.start() turns it on again

_here = os.path.dirname(os.path.abspath(__file__))
# A script's folder is not an import path that user code should see; the package is found by its own __path__ later.
sys.path[:] = [entry for entry in sys.path if entry not in ("", _here)]
sys.path.insert(0, _here)
_bash = sys.argv[1:] == ["bash"]
_preloaded = os.environ.pop("CELLBLOCK_ZYGOTE", None)
sys.argv[:] = ["cellblock"]

if _bash:
    from cellblock_guest import bash

    sys.path.remove(_here)
    bash.run()
else:
    from cellblock_guest import bundle

    _bundle = bundle.open_bundle(os.path.join(_here, "cellblock_guest", "__pycache__", "bundle.pyc"))
    from cellblock_guest import main

    if _preloaded is not None:
        from cellblock_guest import zygote
    sys.path.remove(_here)
    if _preloaded is None:
        main.run(_bundle)
    else:
        zygote.run(_preloaded.split(","), _bundle)
