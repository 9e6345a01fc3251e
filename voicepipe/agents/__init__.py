"""Agents in Python: their functions and hooks, and the functions that the settings describe."""

from voicepipe.agents.agent import Agent as Agent
from voicepipe.agents.file import load_file as load_file
from voicepipe.agents.functions import FunctionTool as FunctionTool
from voicepipe.agents.functions import tool as tool
from voicepipe.ports.server_tool import ToolError as ToolError
from voicepipe.ports.server_tool import ToolSession as ToolSession
