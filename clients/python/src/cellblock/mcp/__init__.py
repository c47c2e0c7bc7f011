"""An MCP server of jailed Python: `cellblock mcp`, or `python -m cellblock.mcp`. See docs/mcp.md.

Needs the official SDK: `pip install 'cellblock[mcp]'`, Python 3.10 or newer.
"""
