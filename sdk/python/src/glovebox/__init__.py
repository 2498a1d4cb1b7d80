# SPDX-License-Identifier: Apache-2.0
"""Sandboxes for AI agents on a Glovebox server."""
from . import errors, types
from ._async.attachment import AsyncAttachment
from ._async.code import AsyncCodeContexts
from ._async.client import AsyncGlovebox
from ._async.execution import AsyncExecution
from ._async.files import AsyncFiles
from ._async.network import AsyncNetwork
from ._async.pages import AsyncPages
from ._async.sandbox import AsyncSandbox
from ._async.snapshots import AsyncSnapshots
from ._async.volumes import AsyncVolumes
from ._async.watch import AsyncWatch
from ._results import CodeResult, CommandFailedError, ExecResult, OutputChunk
from ._sync.attachment import Attachment
from ._sync.code import CodeContexts
from ._sync.client import Glovebox
from ._sync.execution import Execution
from ._sync.files import Files
from ._sync.network import Network
from ._sync.pages import Pages
from ._sync.sandbox import Sandbox
from ._sync.snapshots import Snapshots
from ._sync.volumes import Volumes
from ._sync.watch import Watch
from ._tar import LeftOut
from .errors import ApiError, ConnectionLostError, GloveboxError

__version__ = "0.1.0"
__all__ = [
    "ApiError", "AsyncAttachment", "AsyncCodeContexts", "AsyncExecution", "AsyncFiles", "AsyncGlovebox", "AsyncNetwork", "AsyncPages", "AsyncSandbox", "AsyncSnapshots",
    "AsyncVolumes", "AsyncWatch", "Attachment", "CodeContexts", "CodeResult", "CommandFailedError", "ConnectionLostError", "ExecResult", "Execution", "Files", "Glovebox", "GloveboxError",
    "LeftOut", "Network", "OutputChunk", "Pages", "Sandbox", "Snapshots", "Volumes", "Watch", "errors", "types"]
