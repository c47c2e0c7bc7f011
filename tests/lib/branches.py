"""What tests say to branches, and of them. Test code, outside the jail."""

ALWAYS = ["--set", "transactions.mode=always", "--set", "timeout.grace=0.2"]


def ask(c, what, channel="control", **content):
    return c.request(f"cellblock_{what}_request", content, channel=channel).content


def branch(c, **content):
    reply = ask(c, "branch", **content)
    assert reply["status"] == "ok", reply
    return reply["subshell_id"]


def start_in(c, where, code, *, metadata=None, **content):
    return c.start(code, header=c.header("execute_request", subshell_id=where), metadata=metadata, **content)


def run_in(c, where, code, **how):
    return c.finish(start_in(c, where, code, **how))


def listed(c):
    return [each["subshell_id"] for each in ask(c, "list_branches")["branches"]]


def delete(c, where):
    return c.request("delete_subshell_request", {"subshell_id": where}, channel="control").content


def interrupt(c, **header):
    header = c.header("interrupt_request", **header)
    assert c.request("interrupt_request", {}, channel="control", header=header).content["status"] == "ok"


def waiting(name):
    """A cell that says that it runs, and ends when somebody writes to the pipe of this name."""
    return f"print('on')\nwith open('/tmp/{name}') as f: got = f.read()\ngot"
