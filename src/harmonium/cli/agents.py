"""The command `mcp`: tools for agents."""

from harmonium.cli import options
from harmonium.cli.commands import command


@command("Ask")
def mcp(run: options.RunFolder) -> None:
    """Let agents ask a run before they write: an MCP server on stdin and stdout, read-only.

    Tools: check_fact, missing_facts, explain_fact. An agent's
    host starts this command; by hand it only waits for messages of the protocol.

    Example: harmonium mcp runs/demo
    """
    from harmonium.server.agents import serve_agents

    serve_agents(run)
