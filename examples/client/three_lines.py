"""The shortest one: a cell in a jail, and its value's text."""

from cellblock import Sandbox

with Sandbox("agent") as sb:
    print(sb.run("sum(range(10))").text())
