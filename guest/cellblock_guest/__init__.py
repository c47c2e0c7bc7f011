"""The guest: the interpreter's side of a Cellblock jail. Nothing here is trusted; see ../README.md."""
