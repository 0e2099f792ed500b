"""A server for agents: the tools of agent_tools.py over the Model Context Protocol (MCP), on stdin and stdout.

It only reads. The protocol is that of the official SDK, the extra `mcp`, which is imported only here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

from harmonium.errors import HarmoniumError
from harmonium.run.run import Run
from harmonium.version import __version__

if TYPE_CHECKING:
    from mcp.server import MCPServer


def serve_agents(run: Run | str | Path) -> None:
    """Answer agents on stdin and stdout until the client goes."""
    agent_server(run).run("stdio")


def agent_server(run: Run | str | Path) -> MCPServer[Any]:
    """The MCP server of a run, for a transport of your own.

    The run is read here, so that a wrong folder is an error at once; it is prepared while the client introduces itself.
    """
    try:
        from mcp.server import MCPServer
        from mcp_types import ToolAnnotations
    except ImportError as error:
        raise HarmoniumError(f"a server for agents needs {error.name}: pip install 'harmonium[mcp]'") from error
    from harmonium.server.agent_tools import AgentTools
    from harmonium.server.explorer import Explorer

    tools = AgentTools(Explorer(Run.of(run)))
    server: MCPServer[Any] = MCPServer(
        "harmonium", version=__version__, instructions=tools.instructions, log_level="ERROR"
    )
    read_only = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)
    for tool in tools.all:
        server.add_tool(_with_next_step(tool), annotations=read_only)
    Thread(target=tools.prepare, daemon=True).start()
    return server


def _with_next_step(tool: Callable[..., Any]) -> Callable[..., Any]:
    """A tool whose HarmoniumErrors reach the agent in their own words; other errors stay on the server."""
    from mcp.server.mcpserver.exceptions import ToolError

    from harmonium.server.results import UnknownName

    @wraps(tool)
    def answer(**arguments: Any) -> Any:
        try:
            return tool(**arguments)
        except UnknownName as error:
            names = ", ".join(repr(match.name) for match in error.suggestions)
            raise ToolError(f"{error}; " + (f"did you mean {names}?" if names else "try another spelling")) from error
        except HarmoniumError as error:
            raise ToolError(str(error)) from error

    return answer
