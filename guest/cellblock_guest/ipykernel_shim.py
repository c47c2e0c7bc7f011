"""The `ipykernel` that libraries find: the parts that reach into a kernel are ours, whether the real package is there
or not; all others are the real one's where it is installed, and a minimal stand-in where not.

`ipykernel` and `ipykernel.zmqshell` are in sys.modules from the start: many libraries tell a notebook by that.
"""

import sys
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import module_from_spec

OURS = {  # also where the real package is installed: its own speak to sockets that are not here
    "ipykernel",
    "ipykernel.comm",
    "ipykernel.comm.comm",
    "ipykernel.comm.manager",
    "ipykernel.connect",
    "ipykernel.iostream",
    "ipykernel.kernelapp",
    "ipykernel.zmqshell",
}
STAND_INS = {
    "ipykernel.compiler",
    "ipykernel.displayhook",
    "ipykernel.embed",
    "ipykernel.eventloops",
    "ipykernel.ipkernel",
    "ipykernel.jsonutil",
    "ipykernel.kernelbase",
    "ipykernel.pylab",
    "ipykernel.pylab.backend_inline",
    "ipykernel.pylab.config",
}
_PACKAGES = {"ipykernel", "ipykernel.comm", "ipykernel.pylab"}
_VERSION = "7.0.0"


class _RealPath:
    """__path__ of our `ipykernel`: the real package's folder, looked for when something else of it is imported."""

    def __init__(self):
        self._found = None

    def _folders(self):
        if self._found is None:
            spec = PathFinder.find_spec("ipykernel")
            self._found = list(spec.submodule_search_locations or ()) if spec else []
        return self._found

    def __iter__(self):
        return iter(self._folders())

    def __len__(self):
        return len(self._folders())

    def __getitem__(self, index):
        return self._folders()[index]

    def __repr__(self):
        return repr(self._folders())


class Loader:
    def __init__(self, guest):
        self._guest = guest

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        module.__doc__ = "Cellblock's stand-in for " + module.__name__
        _FILL[module.__name__](self._guest, module)


def find_spec(guest, name):
    spec = ModuleSpec(name, Loader(guest), is_package=name in _PACKAGES)
    if name == "ipykernel":
        spec.submodule_search_locations = _RealPath()
    return spec


def preload(guest):
    """Puts the two modules in place that libraries look for without importing them."""
    parent = None
    for name in ("ipykernel", "ipykernel.zmqshell"):
        spec = find_spec(guest, name)
        sys.modules[name] = module = module_from_spec(spec)
        spec.loader.exec_module(module)
        if parent is not None:
            parent.zmqshell = module
        parent = module


def _top(guest, module):
    def __getattr__(name):
        if name in ("__version__", "version_info", "kernel_protocol_version", "kernel_protocol_version_info"):
            return _about(module.__path__, name)
        if name in ("get_connection_file", "get_connection_info", "connect_qtconsole"):
            from ipykernel import connect

            return getattr(connect, name)
        if name == "embed_kernel":
            return _no_embedding
        raise AttributeError("module 'ipykernel' has no attribute %r" % name)

    module.__getattr__ = __getattr__


def _about(path, name):
    """What ipykernel/_version.py says, where the real package is installed."""
    values = {"__version__": _VERSION, "kernel_protocol_version": "5.3"}
    if len(path):
        from importlib import import_module

        values = vars(import_module("ipykernel._version"))
    if name in values:
        return values[name]
    text = values["__version__" if name == "version_info" else "kernel_protocol_version"]
    return tuple(int(part) if part.isdigit() else part for part in text.split("."))


def _no_embedding(*args, **kwargs):
    raise RuntimeError("no kernel can be embedded in a cell's Python: it runs in a jail, without sockets for clients")


def _comm(guest, module):
    try:
        import comm  # noqa: F401  (the import hook makes our class one of its kind)
    except ImportError:
        pass
    module.Comm = module.BaseComm = guest.comms.comm_class
    module.CommManager = type(guest.comms.manager)


def _connect(guest, module):
    def outside(*args, **kwargs):
        raise RuntimeError("this kernel runs in a jail: its connection file is outside")

    module.get_connection_file = module.get_connection_info = module.connect_qtconsole = outside


def _iostream(guest, module):
    from .streams import OutStream

    module.OutStream = OutStream


def _kernelapp(guest, module):
    class IPKernelApp:
        kernel = guest.kernel
        shell = guest.shell
        config = getattr(guest.shell, "config", {})
        connection_file = ""

        @classmethod
        def instance(cls, *args, **kwargs):
            return _app

        @classmethod
        def initialized(cls):
            return True

    _app = IPKernelApp()
    module.IPKernelApp = IPKernelApp
    module.launch_new_instance = _no_embedding


def _zmqshell(guest, module):
    shell = guest.shell
    module.ZMQInteractiveShell = type(shell)
    for name, attribute in (("ZMQDisplayPublisher", "display_pub"), ("ZMQShellDisplayHook", "displayhook")):
        if hasattr(shell, attribute):
            setattr(module, name, type(getattr(shell, attribute)))

    def __getattr__(name):
        if name == "KernelMagics":
            return guest.kernel_magics()
        raise AttributeError("module 'ipykernel.zmqshell' has no attribute %r" % name)

    module.__getattr__ = __getattr__


# stand-ins


def _compiler(guest, module):
    from .tracebacks import cell_file_name, cell_folder, murmur2

    def murmur2_x86(data, seed):
        return murmur2(data.encode(), seed)

    module.murmur2_x86, module.get_file_name = murmur2_x86, cell_file_name
    module.get_tmp_directory = cell_folder
    if hasattr(guest.shell, "compiler_class"):
        module.XCachingCompiler = type(guest.shell.compile)


def _displayhook(guest, module):
    module.ZMQShellDisplayHook = type(getattr(guest.shell, "displayhook", None))


def _embed(guest, module):
    module.embed_kernel = _no_embedding


def _eventloops(guest, module):
    module.loop_map = {}
    module.register_integration = lambda *names: lambda function: function
    module.enable_gui = lambda gui=None, kernel=None: guest.shell.enable_gui(gui)


def _jsonutil(guest, module):
    from .jsontext import encode, loads

    module.json_clean = lambda value: loads(encode(value))
    module.encode_images = lambda data: data


def _kernelbase(guest, module):
    module.Kernel = module.IPythonKernel = type(guest.kernel)


def _nothing(guest, module):
    pass


def _pylab(guest, module):
    """Where the inline backend was until 2021; configuration files still name it."""
    from importlib import import_module

    real = import_module("matplotlib_inline." + module.__name__.rpartition(".")[2])
    vars(module).update((k, v) for k, v in vars(real).items() if not k.startswith("__"))


_FILL = {
    "ipykernel": _top,
    "ipykernel.comm": _comm,
    "ipykernel.comm.comm": _comm,
    "ipykernel.comm.manager": _comm,
    "ipykernel.compiler": _compiler,
    "ipykernel.connect": _connect,
    "ipykernel.displayhook": _displayhook,
    "ipykernel.embed": _embed,
    "ipykernel.eventloops": _eventloops,
    "ipykernel.iostream": _iostream,
    "ipykernel.ipkernel": _kernelbase,
    "ipykernel.jsonutil": _jsonutil,
    "ipykernel.kernelapp": _kernelapp,
    "ipykernel.kernelbase": _kernelbase,
    "ipykernel.pylab": _nothing,
    "ipykernel.pylab.backend_inline": _pylab,
    "ipykernel.pylab.config": _pylab,
    "ipykernel.zmqshell": _zmqshell,
}
