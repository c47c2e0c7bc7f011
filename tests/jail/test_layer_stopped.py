"""An overlay's changes, when what looks through them or writes them through does not get to its end."""

import pytest

from test_layer import (
    ROOT,
    ask,
    broker_of,
    limit_processes,
    listed,
    overlay,  # noqa: F401 (a fixture)
)

pytestmark = pytest.mark.cellblock_only


@pytest.mark.parametrize("overlay", ["user" if ROOT else "caller"], indirect=True)  # no limit binds root
def test_a_discard_that_no_process_could_begin(overlay):  # noqa: F811
    """It lists nothing, and drops all the same, as it says."""
    c = overlay.client
    assert c.run("open('a', 'w').write('new'); kept = 1").ok
    broker = broker_of(overlay)
    was = limit_processes(broker, 0)
    content = ask(overlay, "discard")
    limit_processes(broker, was)
    assert content["status"] == "error" and "the changes are gone" in content["evalue"], content
    for _ in range(10):  # the jail after it may have met the limit as well
        if (cell := c.run("open('a').read(), 'kept' in globals()")).ok:
            break
    assert cell.result == "('a', False)", cell
    assert listed(ask(overlay, "changes")) == set()
