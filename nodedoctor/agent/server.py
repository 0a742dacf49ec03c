"""The server: the Model Context Protocol by its official package, on standard input and output only."""

from __future__ import annotations

import asyncio
import json
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from nodedoctor import __version__
from nodedoctor.agent.tools import TOOLS, Limits, Refused, Tool, call
from nodedoctor.json_shapes import Json, loaded

if TYPE_CHECKING:
    import mcp_types as types

_INSTRUCTIONS = (
    "nodedoctor finds what is wrong with GPU training nodes and jobs. Every answer begins with its "
    "conclusion in one sentence. All tools only read. A person decides whether commands of a fix are run."
)


def serve(limits: Limits) -> None:
    """Answer until standard input ends."""
    asyncio.run(_serve_tools(limits))


async def _serve_tools(limits: Limits) -> None:
    import mcp_types as types
    from mcp.server.lowlevel import Server
    from mcp.server.stdio import stdio_server

    tools = {tool.name: tool for tool in TOOLS}

    async def list_tools(_: Any, __: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_describe_tool(tool) for tool in TOOLS])

    async def call_tool(_: Any, request: types.CallToolRequestParams) -> types.CallToolResult:
        try:
            if request.name not in tools:
                raise Refused(f"no tool {request.name[:40]!r}")
            answer = await call(tools[request.name], dict(request.arguments or {}), limits)
        except Refused as error:
            return types.CallToolResult(content=[_text_content(str(error))], is_error=True)
        if answer.document is None:
            return types.CallToolResult(content=[_text_content(answer.text)])
        text = f"{answer.sentence}\n{json.dumps(answer.document)}"
        return types.CallToolResult(content=[_text_content(text)], structured_content=answer.document)

    server = Server(
        "nodedoctor",
        version=__version__,
        instructions=_INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )
    async with stdio_server() as (reads, writes):
        await server.run(reads, writes, server.create_initialization_options())


def _text_content(text: str) -> types.TextContent:
    import mcp_types as types

    return types.TextContent(type="text", text=text)


def _describe_tool(tool: Tool) -> types.Tool:
    import mcp_types as types

    return types.Tool(
        name=tool.name,
        description=tool.about,
        input_schema={
            "type": "object",
            "properties": dict(tool.arguments),
            "required": list(tool.required),
            "additionalProperties": False,
        },
        output_schema=dict(_load_schema(tool.schema)) if tool.schema else None,
        annotations=types.ToolAnnotations(read_only_hint=True, destructive_hint=False, open_world_hint=False),
    )


@cache
def _load_schema(name: str) -> Json:
    text = files("nodedoctor.report").joinpath("schemas").joinpath(f"{name}.schema.json").read_text("utf-8")
    schema: Json = loaded(text)
    return schema
