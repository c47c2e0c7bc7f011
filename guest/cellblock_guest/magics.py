"""Magics that differ from a terminal's: there is a pager and an editor in the frontend, and no terminal here."""

import os
import sys

from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_magic, magics_class

from . import environment


@magics_class
class KernelMagics(Magics):
    @line_magic
    def edit(self, parameter_s="", last_call=None):
        """Opens a file, or the code of an object, in the frontend's editor."""
        from IPython.core.magics.code import CodeMagics, MacroToEdit

        opts, args = self.parse_options(parameter_s, "prn:")
        try:
            filename, lineno, _ = CodeMagics._find_edit_target(self.shell, args, opts, last_call or ["", ""])
        except MacroToEdit:
            print("Macros cannot be edited here.")
            return
        payload = {"source": "edit_magic", "filename": os.path.abspath(str(filename)), "line_number": lineno}
        self.shell.payload_manager.write_payload(payload)

    ed = line_magic("ed")(edit)

    @line_magic
    def clear(self, arg_s):
        """Clears the output of the cell."""
        self.shell.display_pub.clear_output()

    @line_magic
    def less(self, arg_s):
        """Shows a file in the pager."""
        if not arg_s:
            raise UsageError("Missing filename.")
        from IPython.core import page

        with open(os.path.expanduser(arg_s), encoding="utf-8", errors="replace") as f:
            text = f.read()
        page.page(self.shell.pycolorize(text) if arg_s.endswith(".py") else text)

    more = line_magic("more")(less)

    @line_magic
    def man(self, arg_s):
        """Shows a manual page in the pager."""
        from IPython.core import page

        page.page(self.shell.getoutput("man %s | col -b" % arg_s, split=False))

    @line_magic
    def pip(self, line):
        """Runs pip for this kernel's Python; what it installs is gone with the kernel."""
        import shlex

        if environment.packages_refused and line.split()[:1] in (["install"], ["uninstall"]):
            raise UsageError('packages.mode is "ro": nothing can be installed; set it to "session" for that')
        self.shell.system("%s -m pip %s" % (shlex.quote(sys.executable), line))
        if self.shell.user_ns.get("_exit_code") == 0:  # IPython says so in any case
            print("Note: you may need to restart the kernel to use updated packages.")

    @line_magic
    def connect_info(self, arg_s):
        """The connection file stays outside the jail; this says so."""
        print("This kernel runs in a jail; its connection file and key are outside. See `jupyter console --existing`.")

    @line_magic
    def qtconsole(self, arg_s):
        """There is no display in the jail."""
        print("No display in the jail: start `jupyter qtconsole --existing` outside.", file=sys.stderr)

    @line_magic
    def autosave(self, arg_s):
        """Sets the autosave interval of the classic notebook, in seconds."""
        try:
            interval = int(arg_s)
        except ValueError:
            raise UsageError("%%autosave requires an integer, got %r" % arg_s) from None
        from IPython.display import Javascript, display

        display(
            Javascript("IPython.notebook.set_autosave_interval(%d)" % (1000 * interval)),
            include=["application/javascript"],
        )
        print("Autosaving every %d seconds" % interval if interval else "Autosave disabled")

    @line_magic
    def store(self, parameter_s=""):
        """Keeps variables for this session; the real magic is loaded when it is first used."""
        self.shell.extension_manager.load_extension("IPython.extensions.storemagic")
        return self.shell.run_line_magic("store", parameter_s)

    @line_magic
    def checkpoint(self, arg_s):
        """%checkpoint NAME: keeps the state as it is when this cell ends, for %rollback NAME."""
        self.shell.guest.transactions.run("checkpoint", arg_s)

    @line_magic
    def rollback(self, arg_s):
        """%rollback [NAME]: ends this cell and brings back a checkpoint's state, or that before the last cell."""
        self.shell.guest.transactions.run("rollback", arg_s)

    @line_magic
    def undo(self, arg_s):
        """%undo [N]: ends this cell and undoes the last one, or the last N, as if they had not run."""
        self.shell.guest.transactions.run("undo", arg_s)

    @line_magic
    def checkpoints(self, arg_s):
        """Lists the named checkpoints."""
        self.shell.guest.transactions.run("checkpoints", arg_s)

    @line_magic
    def limits(self, arg_s):
        """Lists the limits of this session's jail."""
        self.shell.guest.transactions.run("limits", arg_s)

    @line_magic
    def subshell(self, arg_s):
        """Says in which shell of the kernel this runs."""
        import os
        import threading

        from .subshell import running

        lane = running()
        print("subshell: %s" % (lane.number if lane else "none, this is the main shell"))
        print("thread id: %d" % threading.get_ident())
        print("main thread id: %d" % threading.main_thread().ident)
        print("pid: %d" % os.getpid())
        print("thread count: %d" % threading.active_count())
