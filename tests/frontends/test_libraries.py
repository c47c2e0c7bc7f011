"""Libraries that look at what they run in feel at home: each is imported in a jail and used as a notebook does, and
what the client gets is what it would get from ipykernel.

The tests share one kernel, as cells of one notebook do.
"""

import importlib.util

import pytest

pytestmark = [pytest.mark.cellblock_only, pytest.mark.once]


@pytest.fixture
def notebook(client):
    return client


@pytest.fixture
def run(notebook, request):
    """Runs a cell that must succeed; skips where the libraries that the test is marked with are missing."""
    for name in request.node.get_closest_marker("library").args:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"NOT RUN: {name} is not pinned for this Python")

    def run(code, **how):
        cell = notebook.run(code, timeout=90, **how)
        assert cell.ok, "\n".join(cell.content["traceback"])
        return cell

    return run


def data(cell):
    """The mime bundles shown, results and displays, in order."""
    return [m.content["data"] for m in cell.of("display_data", "execute_result")]


def models(cell):
    return [m.content["data"]["state"].get("_model_name") for m in cell.of("comm_open")]


library = pytest.mark.library


@library()
def test_what_notebooks_are_told_by(run):
    """The recipes that libraries use to tell whether and where they run in a notebook."""
    cell = run("""
import os, re, sys
ip = get_ipython()
def f(): pass
checks = {
    "rich": type(ip).__name__ == "ZMQInteractiveShell",
    "huggingface": any(c.__name__ == "ZMQInteractiveShell" for c in type(ip).__mro__),
    "tqdm": "IPKernelApp" in ip.config and "ipykernel.zmqshell" in sys.modules,
    "pandas": "zmq" in str(type(ip)).lower(),
    "dask": getattr(ip, "kernel", None) is not None and ip.has_trait("kernel"),
    "click": type(sys.stdout).__module__.startswith("ipykernel."),
    "many": "ipykernel" in sys.modules,
    "executing": bool(re.search(r"[/\\\\\\\\]ipykernel_\\d+[/\\\\\\\\]", f.__code__.co_filename)),
    "loop": __import__("asyncio").get_event_loop().is_running(),
    "hooks": ip.display_pub is not None and hasattr(ip.display_pub, "register_hook"),
    "parent": ip.kernel.get_parent()["header"] == ip.get_parent()["header"] and "msg_id" in ip.get_parent()["header"],
    "colours": os.environ["FORCE_COLOR"] + os.environ["CLICOLOR_FORCE"] == "11" and os.environ["PAGER"] == "cat",
    "stdout": not sys.stdout.isatty() and sys.stdout.fileno() == 1 and sys.stdout.encoding.lower() == "utf-8",
    "in order": [ip.user_ns["__name__"], sys.modules["__main__"].f is f] == ["__main__", True],
}
[name for name, good in checks.items() if not good]""")
    assert cell.result == "[]"


@library("tqdm", "ipywidgets")
def test_tqdm(run):
    cell = run("from tqdm.auto import tqdm, trange\nfor i in tqdm(range(3)): pass\ntqdm.__module__")
    assert cell.result == "'tqdm.auto'"
    assert "FloatProgressModel" in models(cell) and cell.text("stderr") == ""
    cell = run("import tqdm as t\nfor i in t.tqdm(range(3)): pass")
    assert "3/3" in cell.text("stderr")
    assert run("from tqdm.autonotebook import tqdm as a\na.__module__").result == "'tqdm.notebook'"


@library("rich")
def test_rich(run, notebook):
    cell = run("import rich\nfrom rich.table import Table\nt = Table('a')\nt.add_row('[red]1')\nrich.print(t)\nt")
    assert len(data(cell)) == 2 and all("text/html" in d for d in data(cell)) and cell.text() == ""
    cell = run("from rich.progress import track\nfor i in track(range(3)): pass")
    assert "OutputModel" in models(cell) and "100%" in data(cell)[-2]["text/plain"]
    assert run("from rich.console import Console\nConsole().is_jupyter").result == "True"
    try:
        run("from rich import traceback\ntraceback.install();")
        cell = notebook.run("1/0", timeout=90)
        assert [m.type for m in cell.of("display_data", "error")] == ["display_data"] and not cell.ok
    finally:
        run("for n in ('showtraceback', '_showtraceback', 'showsyntaxerror'): get_ipython().__dict__.pop(n, 0)")


@library("pandas")
def test_pandas(run):
    cell = run("import pandas as pd\nd = pd.DataFrame({'a': [1.5, None]})\ndisplay(d.style.format(precision=1))\nd")
    assert all("<table" in d["text/html"] for d in data(cell)) and cell.text("stderr") == ""
    assert "a" in data(run("d.describe()"))[0]["text/plain"]


@library("polars")
def test_polars(run):
    cell = run("import polars as pl\nd = pl.LazyFrame({'a': [1, 2, 3]}).filter(pl.col('a') > 1)\nd.collect()")
    assert "<table" in data(cell)[0]["text/html"]
    assert run("d.select(pl.col('a').sum()).collect().item()").result == "5"
    run(
        "pl.DataFrame({'a': range(1000)}).write_parquet('p')\n"
        "assert pl.scan_parquet('p').collect().height == 1000\n!rm p"
    )


@library("plotly")
def test_plotly(run):
    cell = run("import plotly.graph_objects as go\nf = go.Figure(go.Bar(y=[1, 2]))\nf.show()\nf")
    assert len(data(cell)) == 2 and all("application/vnd.plotly.v1+json" in d for d in data(cell))


@library("altair", "pandas")
def test_altair(run):
    cell = run("import altair as alt, pandas as pd\nalt.Chart(pd.DataFrame({'a': [1]})).mark_bar().encode(x='a:Q')")
    assert "vega" in data(cell)[0]["text/html"]
    cell = run("alt.renderers.enable('mimetype')\nalt.Chart(pd.DataFrame({'a': [1]})).mark_point().encode(x='a:Q')")
    assert any("vegalite" in mime for mime in data(cell)[0])


@library("bokeh")
def test_bokeh(run):
    cell = run(
        "from bokeh.io import output_notebook, push_notebook, show\n"
        "from bokeh.plotting import figure\noutput_notebook()"
    )
    assert len(data(cell)) == 2
    cell = run("p = figure(); p.line([1, 2], [1, 2])\nhandle = show(p, notebook_handle=True)")
    assert any("application/javascript" in d for d in data(cell)) and cell.of("comm_open")
    sent = run("p.title.text = 'new'; push_notebook(handle=handle)").of("comm_msg")
    assert any("new" in m.content["data"] for m in sent), "its data is text, not an object"


@library("matplotlib")
def test_matplotlib(run):
    cell = run("import matplotlib.pyplot as plt")
    assert cell.types == ["status", "execute_input", "status"], "a first import says nothing"
    cell = run("plt.plot([1, 2])\nplt.figure(); plt.plot([2, 1]);")
    assert ["image/png" in d for d in data(cell)] == [True, True], "shown at the cell's end"
    cell = run(
        "%config InlineBackend.figure_formats = ['svg']\nfig, ax = plt.subplots()\n"
        "print('before'); plt.show(); print('after')"
    )
    assert [m.type for m in cell.of("stream", "display_data")] == ["stream", "display_data", "stream"]
    assert "image/svg+xml" in data(cell)[0]
    run("%config InlineBackend.figure_formats = ['png']\n%matplotlib inline")
    assert "image/png" in run("plt.plot([1, 2])\nplt.gcf()").of("execute_result")[0].content["data"]
    run("plt.close('all')")
    cell = run("%matplotlib notebook\nplt.plot([1]);")
    assert [m.content["target_name"] for m in cell.of("comm_open")] == ["matplotlib"], "it needs no display"
    run("plt.close('all')\n%matplotlib inline")


@library("ipywidgets")
def test_ipywidgets(run, notebook):
    cell = run(
        "import ipywidgets as w\ns = w.IntSlider(3)\nout = w.Output()\n"
        "s.observe(lambda c: got.append(c.new), 'value')\n"
        "got = []\ndisplay(s)\nwith out:\n    print('inside')\n    display(1)\nprint('outside')"
    )
    assert "IntSliderModel" in models(cell)
    slider = next(m for m in cell.of("comm_open") if m.content["data"]["state"].get("_model_name") == "IntSliderModel")
    captured = [
        m.content["data"]["state"]["msg_id"] for m in cell.of("comm_msg") if "msg_id" in m.content["data"]["state"]
    ]
    assert captured == [cell.reply.parent_id, ""]
    kinds = [m.type for m in cell.of("stream", "display_data", "comm_msg")]
    assert kinds == ["display_data", "comm_msg", "stream", "display_data", "comm_msg", "stream"]
    moved = {"method": "update", "state": {"value": 7}, "buffer_paths": []}
    notebook.until_idle(notebook.send("comm_msg", {"comm_id": slider.content["comm_id"], "data": moved}))
    assert run("got, s.value").result == "([7], 7)"
    cell = run("w.interact(lambda x: x * 2, x=3)")
    assert any(d["text/plain"] == "6" for d in data(cell))
    assert run(
        "from ipywidgets import jslink, Button; b = Button(); b.on_click(lambda b: print('clicked')); b.click()"
    ).text()


@library("dask", "distributed", "numpy")
def test_dask(run):
    assert run("import dask.array as da\nint(da.ones((100, 100), chunks=50).sum().compute())").result == "10000"
    code = "import dask.bag as db\ndb.from_sequence(range(4)).map(lambda x: x + 1).sum().compute(scheduler='processes')"
    assert run(code).result == "10"
    cell = run(
        "import dask, logging\nlogging.getLogger('distributed').setLevel('ERROR')\n"
        "from dask.distributed import Client\n"
        "c = Client(n_workers=1, threads_per_worker=1, dashboard_address=None)\n"
        "print(c.submit(lambda x: x + 1, 2).result()); display(c); c.close()"
    )
    assert cell.text() == "3\n" and "text/html" in data(cell)[0]


@library("nest_asyncio")
def test_asyncio(run):
    assert (
        "running event loop"
        in run(
            "import asyncio\nc = asyncio.sleep(0)\ntry: asyncio.run(c)\nexcept RuntimeError as e: print(e)\nawait c"
        ).text()
    )
    assert run("import nest_asyncio; nest_asyncio.apply()\nasyncio.run(asyncio.sleep(0, 5))").result == "5"
    assert run("await asyncio.gather(asyncio.sleep(0, 1), asyncio.to_thread(int, '2'))").result == "[1, 2]"


@library("tornado")
def test_tornado(run):
    assert run("from tornado.ioloop import IOLoop\nIOLoop.current() is get_ipython().kernel.io_loop").result == "True"
    run("called = []\nIOLoop.current().add_callback(called.append, 1)")
    assert run("import asyncio\nawait asyncio.sleep(0.01)\ncalled").result == "[1]"


@library()
def test_magics(run, notebook):
    assert "Wall time" in run("%%time\nx = 1").text()
    assert "no GUI" in run("%gui qt").text("stderr") and run("%gui").ok and run("%gui asyncio").ok
    assert notebook.run("1/0").error and "ZeroDivisionError" in "".join(notebook.run("%tb").error["traceback"])
    assert "pip" in run("%pip --version").text()
    assert run("%%capture got\nprint('quiet')\n").text() == "" and run("got.stdout").result == "'quiet\\n'"
    assert run("%%javascript\n1").of("display_data")[0].content["data"]["application/javascript"].strip() == "1"
    assert run("%%latex\n$x$").of("display_data") and run("%%svg\n<svg/>").of("display_data")
    assert run("%timeit -n1 -r1 -q 1").ok and run("%who_ls").result and "autoawait" in run("%lsmagic").result
    assert notebook.run("%no_such").error["ename"] == "UsageError"


@library()
def test_debug(run, notebook):
    """%debug after an error, and breakpoint(): a prompt in the frontend."""
    notebook.run("def fails(n):\n    inner = n\n    1/0\nfails(42)")

    def talk(code, *lines):
        cell = notebook.start(code, allow_stdin=True)
        for line in lines:
            question = notebook.next("stdin")
            assert question.content["prompt"] in ("ipdb> ", "(Pdb) ")
            notebook.send("input_reply", {"value": line}, channel="stdin", parent=question.header)
        return notebook.finish(cell)

    assert "42" in talk("%debug", "p inner", "q").text()
    assert "43" in talk("def g(v):\n    breakpoint()\n    return v\ng(43)", "p v", "c").text()
    assert run("'kept'").result == "'kept'"


@library("ipywidgets", "ipympl", "matplotlib")
def test_ipympl(run, notebook):
    """The last one: from here on each cell's end asks its canvas to draw."""
    cell = run("%matplotlib widget\nimport matplotlib.pyplot as plt\nfig, ax = plt.subplots(); ax.plot([1, 2]);")
    assert "MPLCanvasModel" in models(cell) and any("widget-view" in m for d in data(cell) for m in d)
    canvas = next(m for m in cell.of("comm_open") if m.content["data"]["state"].get("_model_name") == "MPLCanvasModel")
    asked = {"method": "custom", "content": {"type": "draw"}}
    msg = notebook.send("comm_msg", {"comm_id": canvas.content["comm_id"], "data": asked})
    assert any(m.type == "comm_msg" and m.buffers for m in notebook.until_idle(msg)), "the picture comes as a buffer"
