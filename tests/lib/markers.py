"""Cells that leave a mark in every place that a session has, and that look for marks. Role: code for the jail.

PLANT and LOOK are cells. Only the former has the word "cbmark_out". LOOK's value is {place: what was found there}, of
places where something was found.
"""

PLANT = r'''
import builtins, os, pathlib, readline, resource, signal, socket, subprocess, sys, sysconfig, threading, time, types
import warnings

cbmark_variable = 1
builtins.cbmark = 1
sys.modules["cbmark_module"] = types.ModuleType("cbmark_module")
sys.path.append("/tmp/cbmark_path")
os.environ["CBMARK"] = "1"
warnings.filterwarnings("ignore", message="cbmark")
for cbmark_folder in ("/tmp", "/dev/shm", os.path.expanduser("~"), ".", sysconfig.get_path("purelib")):
    try:
        pathlib.Path(cbmark_folder, "cbmark").write_text("x")
    except OSError:  # a workspace that can't be written to
        pass
os.mkfifo("/tmp/cbmark_fifo")
os.makedirs("/tmp/cbmark_folder")
threading.Thread(target=time.sleep, args=(987654,), name="cbmark", daemon=True).start()
cbmark_child = subprocess.Popen(["sleep", "987654"])
subprocess.run(["sh", "-c", "setsid sleep 987655 & :"])
signal.signal(signal.SIGUSR1, lambda *cbmark: None)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
cbmark_socket = socket.socket(socket.AF_UNIX)
cbmark_socket.bind("/tmp/cbmark_socket")
cbmark_socket.listen()
cbmark_abstract = socket.socket(socket.AF_UNIX)
cbmark_abstract.bind("\0cbmark_abstract")
cbmark_port = socket.socket()
cbmark_port.bind(("127.0.0.1", 47123))
cbmark_port.listen()
cbmark_descriptor = os.open("/tmp/cbmark", os.O_RDONLY)
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
resource.setrlimit(resource.RLIMIT_STACK, (1 << 20, resource.getrlimit(resource.RLIMIT_STACK)[1]))
os.nice(3)
readline.add_history("cbmark")
cbtool = "a tool that the user covers"
get_ipython().register_magic_function(lambda line: None, "line", "cbmark")
get_ipython().events.register("post_run_cell", cbmark_event := lambda *a: None)
get_ipython().alias_manager.define_alias("cbmark_alias", "true")
from comm import create_comm
cbmark_comm = create_comm(target_name="cbmark")
os.chdir("/tmp/cbmark_folder")
os.umask(0o027)
"cbmark_out"
'''

FIGURE = """
import matplotlib
matplotlib.use("agg")
import matplotlib.pyplot
matplotlib.pyplot.figure("cbmark")
matplotlib.rcParams["savefig.dpi"] = 987
"""

LOOK = r'''
def look():
    import builtins, contextlib, io, os, pathlib, readline, resource, signal, sys, sysconfig, threading, warnings

    def text(path):
        try:
            return pathlib.Path(path).read_bytes().decode("utf-8", "replace")
        except OSError:
            return ""

    def lines(path):
        return [line for line in text(path).splitlines() if "mark" in line]

    def said_by(magic):
        with contextlib.redirect_stdout(io.StringIO()) as said:
            try:
                ip.run_line_magic(*magic)
            except Exception as e:
                print(e)
        return ["mark"] if "cbmark" in said.getvalue() else []

    ip = get_ipython()
    names = globals()
    places = {"tmp": "/tmp", "shm": "/dev/shm", "home": os.path.expanduser("~"),
              "prefix": sysconfig.get_path("purelib")}
    found = {place: [f for f in os.listdir(folder) if "cbmark" in f] for place, folder in places.items()
             if os.path.isdir(folder)}
    tasks = [t for p in os.listdir("/proc") if p.isdigit() for t in pathlib.Path("/proc", p, "task").glob("*")]
    links = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")
             if os.path.lexists(f"/proc/self/fd/{fd}")]
    figures = sys.modules.get("matplotlib.pyplot")
    found.update({
        "globals": [n for n in names if n.startswith("cbmark")],
        "builtins": [n for n in dir(builtins) if "cbmark" in n],
        "modules": [n for n in sys.modules if "cbmark" in n],
        "path": [p for p in sys.path if "cbmark" in p],
        "environment": [n for n in os.environ if "CBMARK" in n],
        "environment of a child": ["mark"] * ("CBMARK" in os.popen("env").read()),
        "warnings": [1 for f in warnings.filters if f[1] is not None and "cbmark" in f[1].pattern],
        "workspace": [f for f in os.listdir(WORKSPACE) if "cbmark" in f],
        "folder": [os.getcwd()] * ("cbmark" in os.getcwd()),
        "umask": [os.umask(os.umask(0))] * (text("/proc/self/status").split("Umask:")[1].split()[0] == "0027"),
        "threads": [t.name for t in threading.enumerate() if "cbmark" in t.name],
        "processes": [t.name for t in tasks if text(t / "comm") == "sleep\n"],
        "signal handlers": [1] * callable(signal.getsignal(signal.SIGUSR1)),
        "signal mask": [1 for s in signal.pthread_sigmask(signal.SIG_BLOCK, []) if s == signal.SIGUSR2],
        "sockets": lines("/proc/net/unix"),
        "ports": [l for l in text("/proc/net/tcp").splitlines() if "0100007F:B813" in l],
        "descriptors": [l for l in links if "cbmark" in l],
        "limits": [1] * (resource.getrlimit(resource.RLIMIT_STACK)[0] == 1 << 20),
        "niceness": [os.nice(0)] * (os.nice(0) > NICE),
        "In": [1 for source in In[:-1] if "cbmark" in source],
        "Out": [k for k, v in Out.items() if "cbmark" in str(v)],
        "underscores": [n for n in ("_", "__", "___", "_i", "_ii", "_iii") if "cbmark" in str(names.get(n))],
        "readline": [1 for i in range(readline.get_current_history_length())
                     if "cbmark" in str(readline.get_history_item(i + 1))],
        "%history": said_by(("history", "-l 1000")) if len(In) > 2 else [],
        "%history -g": said_by(("history", "-g *cbmark" + "_out*")),
        "history of the session": [1 for row in ip.history_manager.get_tail(100, include_latest=False)
                                   if "cbmark" in str(row)],
        "magics": [n for n in ip.magics_manager.lsmagic()["line"] if "cbmark" in n],
        "events": [1 for f in ip.events.callbacks["post_run_cell"] if f.__name__ == "<lambda>"],
        "comms": [c for c in getattr(__import__("comm").get_comm_manager(), "comms", {})],
        "tools that are covered": [1] * isinstance(names.get("cbtool"), str),
        "figures": [] if figures is None else figures.get_figlabels(),
        "settings of matplotlib": [1] * (figures is not None and figures.rcParams["savefig.dpi"] == 987),
    })
    return {place: [str(x)[:200] for x in marks] for place, marks in found.items() if marks}

look()
'''
