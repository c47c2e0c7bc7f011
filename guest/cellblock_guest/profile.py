"""IPython's default profile: its configuration and start-up files are read where HOME has them; nothing is ever
written."""

import os
import sys


_NAMES = "ipython_config", "ipython_kernel_config"
_EXTENSIONS = ".py", ".json"


def _places():
    ipython_dir = os.environ.get("IPYTHONDIR") or os.path.join(os.path.expanduser("~"), ".ipython")
    return ipython_dir, os.path.join(ipython_dir, "profile_default")


def has_config():
    _, location = _places()
    if not os.path.isdir(location):
        return False
    return any(os.path.isfile(os.path.join(location, name + each)) for name in _NAMES for each in _EXTENSIONS)


def profile_config(config, guest):
    """(ipython_dir, profile_dir, config): of HOME/.ipython if it exists, else a folder made only if something needs
    one."""
    from IPython.core.profiledir import ProfileDir

    ipython_dir, location = _places()
    for name in _NAMES:
        _load(config, location, name, guest)
    return ipython_dir, _profile_dir_class(ProfileDir)(location=location, config=config), config


def _profile_dir_class(base):
    from traitlets import observe

    class ReadOnlyProfileDir(base):
        """Names the folders without making them."""

        @observe("location")
        def _location_changed(self, change):
            for name in ("security", "log", "startup", "pid", "static"):
                if hasattr(self, name + "_dir"):
                    setattr(self, name + "_dir", os.path.join(change["new"], name))

        def check_dirs(self):
            pass

    for name in ("log", "startup", "security", "pid", "static"):
        setattr(ReadOnlyProfileDir, "check_%s_dir" % name, lambda self, change=None: None)
    return ReadOnlyProfileDir


def _load(config, folder, name, guest):
    for extension in _EXTENSIONS:
        path = os.path.join(folder, name + extension)
        if not os.path.isfile(path):
            continue
        try:
            from traitlets.config.loader import JSONFileConfigLoader, PyFileConfigLoader

            loader = PyFileConfigLoader if extension == ".py" else JSONFileConfigLoader
            config.merge(loader(name + extension, path=folder).load_config())
        except Exception:
            guest.log_exception("profile file " + path)


def _application(config):
    """As ipykernel's application has it, which is one of those with a shell: its own section counts more."""
    from copy import deepcopy

    app = {}
    for section in ("InteractiveShellApp", "IPKernelApp"):
        for name, value in config.get(section, {}).items():
            if hasattr(value, "get_value"):  # it adds to what was there, as by append()
                value = deepcopy(value).get_value(app.get(name, []))
            app[name] = value
    return app


def run_startup(shell, guest):
    """In IPython's order: extensions, PYTHONSTARTUP, the files in startup/, exec_lines, exec_files."""
    app = _application(shell.config)
    for extension in app.get("extensions", ()):
        try:
            shell.extension_manager.load_extension(extension)
        except Exception:
            guest.log_exception("extension %s" % extension)
    files = []
    startup = shell.profile_dir.startup_dir
    if os.environ.get("PYTHONSTARTUP") and app.get("exec_PYTHONSTARTUP", True):
        files.append(os.environ["PYTHONSTARTUP"])
    try:
        names = sorted(os.listdir(startup))
    except OSError:
        names = []
    files += [os.path.join(startup, name) for name in names if name.endswith((".py", ".ipy"))]
    _run_files(shell, files, guest)
    for line in app.get("exec_lines", ()):
        shell.run_cell(line, store_history=False)
    _run_files(shell, map(os.path.expanduser, app.get("exec_files", ())), guest)
    if app.get("hide_initial_ns", True):
        _hide_names(shell)
    if files or app.get("exec_lines") or app.get("exec_files"):
        guest.output.flush()


def _hide_names(shell):
    """From %who and its like, which show none with an underscore. A `_` of the user's is known by that it is not
    there."""
    names = {name: value for name, value in shell.user_ns.items() if not name.startswith("_")}
    shell.user_ns_hidden.update(names)


def _run_files(shell, paths, guest):
    for path in paths:
        if os.path.isfile(path):
            _run_file(shell, path, guest)


def _run_file(shell, path, guest):
    argv = sys.argv
    sys.argv = [path]
    try:
        if path.endswith(".ipy"):
            shell.safe_execfile_ipy(path, shell_futures=True)
        else:
            shell.safe_execfile(path, shell.user_ns, raise_exceptions=False, shell_futures=True)
    except Exception:
        guest.log_exception("start-up file " + path)
    finally:
        sys.argv = argv
