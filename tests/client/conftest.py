"""Sandboxes for the tests of the Python client: the real kernel, sync and async by the same words."""

import asyncio
import inspect

import pytest

import cellblock
import kernels
import servers


class Driven:
    """An object with async methods, used without await: a loop of its own runs them."""

    def __init__(self, inner, loop):
        self.inner, self.loop = inner, loop

    def __getattr__(self, name):
        found = getattr(self.inner, name)
        if not callable(found) or isinstance(found, (cellblock.Policy, cellblock.Result)):
            return found

        def method(*args, **how):
            args = [a.inner if isinstance(a, Driven) else a for a in args]
            got = found(*args, **how)
            if inspect.isasyncgen(got):
                return self.all_of(got)
            if inspect.isawaitable(got):
                got = self.loop.run_until_complete(got)
            if got is self.inner:
                return self
            if isinstance(got, (cellblock.AsyncBranch, cellblock.AsyncFile)):
                return Driven(got, self.loop)
            return got

        return method

    def all_of(self, events):
        while True:
            try:
                yield self.loop.run_until_complete(events.__anext__())
            except StopAsyncIteration:
                return

    def __getitem__(self, name):
        return self.get(name)

    def __enter__(self):
        self.loop.run_until_complete(self.inner.__aenter__())
        return self

    def __exit__(self, *error):
        self.loop.run_until_complete(self.inner.__aexit__(*error))


class Maker:
    def __init__(self, folder, kind):
        self.folder, self.kind, self.made, self.count, self.fit = folder, kind, [], 0, None
        self.loop = asyncio.new_event_loop()

    def work(self):
        self.count += 1
        folder = self.folder / f"work{self.count}"
        kernels.let_in(folder)
        return folder

    def __call__(self, base="agent", *, connect=None, **how):
        kind = cellblock.Sandbox if self.kind == "sync" else cellblock.AsyncSandbox
        if connect is not None:
            sb = kind.connect(connect, **how)
        else:
            sb = kind(base, **{"workspace": how.pop("workspace", None) or self.work(), **how})
        sb = sb if self.kind == "sync" else Driven(sb, self.loop)
        self.made.append(sb)
        return sb

    def end(self):
        for sb in self.made:
            sb.close()
        self.loop.close()


@pytest.fixture(params=["sync", "async"])
def make(request, nothing_left):
    maker = Maker(nothing_left / request.node.name.replace("/", "_")[:60], request.param)
    yield maker
    maker.end()


@pytest.fixture(scope="module", params=["sync", "async"])
def sandboxes(request, nothing_left):
    maker = Maker(nothing_left / f"shared-{request.param}", request.param)
    yield maker
    maker.end()


@pytest.fixture
def sb(request, sandboxes):
    """One sandbox of a module's tests that do no harm to it; policy `notebook`, its workspace in memory. A new one
    after a test that failed."""
    if sandboxes.fit is None:
        how = getattr(request.module, "HOW", {"policy": {"workspace.mode": "tmpfs"}})
        sandboxes.fit = sandboxes(getattr(request.module, "BASE", "notebook"), **how)
    return sandboxes.fit


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.failed and "sandboxes" in item.funcargs:
        item.funcargs["sandboxes"].fit = None
    return report


@pytest.fixture(scope="session")
def values(tmp_path_factory):
    """Skips where the kernel does not give values as data."""
    folder = tmp_path_factory.mktemp("values")
    kernels.let_in(folder)
    with cellblock.Sandbox("notebook", workspace=folder) as sb:
        if not sb.run("1").has_value:
            pytest.skip("this kernel gives no values as data")


@pytest.fixture(scope="module")
def gateway(nothing_left):
    pytest.importorskip("kernel_gateway")
    folder, port = nothing_left / "gateway", kernels.free_ports(1)[0]
    (folder / "work").mkdir(parents=True)
    options = [f"--KernelGatewayApp.port={port}", "--KernelGatewayApp.ip=127.0.0.1"]
    options += ["--KernelGatewayApp.auth_token=secret", "--JupyterWebsocketPersonality.list_kernels=True"]
    with servers.running("kernel_gateway", folder, options, "Jupyter Kernel Gateway", server=False):
        servers.listening(port)
        yield f"http://127.0.0.1:{port}"


@pytest.fixture(scope="module")
def server(nothing_left):
    pytest.importorskip("jupyter_server")
    folder = nothing_left / "server"
    (folder / "work").mkdir(parents=True)
    options = ["--IdentityProvider.token=secret", "--ServerApp.ip=127.0.0.1"]
    with servers.running("jupyter_server", folder, options, r"(http://127\.0\.0\.1:(\d+))/") as found:
        servers.listening(int(found.group(2)))
        yield found.group(1)
