"""A server of the MCP Python SDK, for TestPythonServer."""

from mcp.server import MCPServer

server = MCPServer("words")


@server.tool()
def count_words(text: str) -> int:
    """Counts the words of a text."""
    return len(text.split())


server.run()
