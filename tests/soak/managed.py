"""A kernel that jupyter_client's own manager starts, restarts, interrupts and ends.

Role: test code, outside the jail. Invariants: as in tests/lib/kernels.py, whose Kernel this is to all that looks at
processes. Callers: session.py.
"""

import os

import kernels
from jupyter_client import KernelManager


class Managed(kernels.Kernel):
    def __init__(self, folder, args, workspace=None):
        self.folder = folder
        self.workspace = workspace or folder / "work"
        self.tmp, self.run_folder = folder / "tmp", folder / "run"
        for d in (folder, self.workspace, self.tmp, self.run_folder, folder / "home"):
            d.mkdir(parents=True, exist_ok=True)
        self.out = folder / "said"
        env = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "COV_"))},
            "CELLBLOCK_LOG": "info",
            "TMPDIR": str(self.tmp),
            "HOME": str(folder / "home"),
            "IPYTHONDIR": str(folder / "home/ipython"),
            "XDG_DATA_HOME": str(folder / "home/share"),
        }
        self.manager = KernelManager(
            kernel_name=kernels.NAME, connection_file=str(self.run_folder / "kernel-soak.json"), shutdown_wait_time=30.0
        )
        self.closed = False
        self.said_to = open(self.out, "ab")  # the manager starts the next one with it as well
        self.manager.start_kernel(
            extra_arguments=list(args), cwd=str(self.workspace), env=env, stdout=self.said_to, stderr=self.said_to
        )
        self.look()

    def look(self):
        """The process that the manager has started."""
        info = self.manager.get_connection_info()
        self.connection = {k: v.decode() if isinstance(v, bytes) else v for k, v in info.items()}
        self.process = self.manager.provisioner.process
        self.pidfd = os.pidfd_open(self.manager.provisioner.pid)

    @property
    def pid(self):
        return self.manager.provisioner.pid

    def restart(self, now=False):
        """Also of a kernel that has died, as servers do."""
        old = self.pidfd
        self.manager.restart_kernel(now=now)
        self.look()
        os.close(old)

    def stop(self):
        if not self.closed:
            self.closed = True
            self.manager.shutdown_kernel()
            self.close()

    def kill(self):
        if not self.closed:
            self.closed = True
            family = self.family() if self.alive() else []
            self.manager.shutdown_kernel(now=True)
            self.close()
            kernels.wait_gone(family, 10)

    def close(self):
        self.manager.cleanup_resources()
        self.manager.context.destroy(linger=0)
        self.said_to.close()
        os.close(self.pidfd)
