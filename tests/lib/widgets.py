"""Messages of widgets, as frontends send them to Python."""


def counting_comm(c):
    """The id of a comm whose messages are counted in n."""
    assert c.run(
        "from ipykernel.comm import Comm\nn = 0\ncomm = Comm(target_name='t')\n"
        "def on(message):\n    global n; n += 1\ncomm.on_msg(on)"
    ).ok
    return c.run("comm.comm_id").result.strip("'")
