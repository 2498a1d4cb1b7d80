# SPDX-License-Identifier: Apache-2.0
"""Everything this package raises, except wrong arguments (TypeError, ValueError)."""
from __future__ import annotations

import json
from typing import Any, Dict, Mapping, Optional, Type


class GloveboxError(Exception):
    """The root of them all."""


class SettingsError(GloveboxError):
    """No address or key for the server could be found."""


class ConnectionLostError(GloveboxError):
    """The server could not be reached, or the connection broke. Unless `sent`, it cannot have acted on the call."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


class ConnectionTimeoutError(ConnectionLostError):
    """The server was silent for longer than `idle_timeout_ms`, or did not accept the connection in `connect_timeout_ms`."""


class ProtocolError(GloveboxError):
    """An answer that is not what the API promises: something else listens there, or a proxy changed it."""


class ApiError(GloveboxError):
    """The server refused the call, or could not do it. docs/errors.md lists the codes."""

    def __init__(self, code: str, message: str, *, status: int, advice: str = "", request_id: str = "", is_retryable: bool = False,
                 fault: str = "platform", details: Optional[Dict[str, str]] = None, retry_after: Optional[float] = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = status
        self.advice = advice
        self.request_id = request_id
        self.is_retryable = is_retryable
        self.fault = fault
        self.details = details or {}
        self.retry_after = retry_after  # seconds, when the server said so

    def __str__(self) -> str:
        return f"{self.message} ({self.code}; {self.advice} request {self.request_id})"


class InvalidArgumentError(ApiError):
    pass


class InvalidPathError(InvalidArgumentError):
    pass


class TooManyLinksError(InvalidArgumentError):
    pass


class UserUnknownError(InvalidArgumentError):
    pass


class WorkdirNotFoundError(InvalidArgumentError):
    pass


class CommandNotFoundError(InvalidArgumentError):
    pass


class CommandNotExecutableError(InvalidArgumentError):
    pass


class ArgumentsTooLongError(InvalidArgumentError):
    pass


class PayloadTooLargeError(InvalidArgumentError):
    pass


class UnauthenticatedError(ApiError):
    pass


class ForbiddenError(ApiError):
    pass


class PermissionDeniedError(ForbiddenError):
    pass


class ReadOnlyError(ForbiddenError):
    pass


class NotFoundError(ApiError):
    pass


class SandboxNotFoundError(NotFoundError):
    pass


class ExecutionNotFoundError(NotFoundError):
    pass


class TemplateNotFoundError(NotFoundError):
    pass


class SnapshotNotFoundError(NotFoundError):
    pass


class VolumeNotFoundError(NotFoundError):
    pass


class SandboxFileNotFoundError(NotFoundError):
    pass


class ConflictError(ApiError):
    pass


class AlreadyExistsError(ConflictError):
    pass


class SandboxFileExistsError(ConflictError):
    pass


class SandboxNotADirectoryError(ConflictError):
    pass


class SandboxIsADirectoryError(ConflictError):
    pass


class DirectoryNotEmptyError(ConflictError):
    pass


class SandboxNotReadyError(ConflictError):
    pass


class TemplateInUseError(ConflictError):
    pass


class SnapshotInUseError(ConflictError):
    pass


class SnapshotMismatchError(ConflictError):
    pass


class VolumeInUseError(ConflictError):
    pass


class SandboxEndedError(ApiError):
    pass


class SandboxLimitError(ApiError):
    """A limit of the sandbox itself is reached."""


class ProcessLimitError(SandboxLimitError):
    pass


class OpenFileLimitError(SandboxLimitError):
    pass


class DiskFullError(SandboxLimitError):
    pass


class MemoryLimitError(SandboxLimitError):
    pass


class CapacityError(ApiError):
    pass


class RateLimitedError(ApiError):
    pass


class UnsupportedError(ApiError):
    """This server does not have what was asked for."""


class RouteNotFoundError(UnsupportedError):
    pass


class RuntimeUnavailableError(ApiError):
    pass


class PreviewUnreachableError(ApiError):
    pass


class ServerError(ApiError):
    """The server, its host or the sandbox's machinery failed."""


class StartFailedError(ServerError):
    pass


class ServerTimeoutError(ServerError):
    pass


class UnavailableError(ServerError):
    pass


# A code that is newer than this package is an ApiError.
ERROR_CLASSES: Mapping[str, Type[ApiError]] = {
    "invalid_argument": InvalidArgumentError,
    "invalid_path": InvalidPathError,
    "payload_too_large": PayloadTooLargeError,
    "unauthenticated": UnauthenticatedError,
    "forbidden": ForbiddenError,
    "not_found": NotFoundError,
    "sandbox_not_found": SandboxNotFoundError,
    "execution_not_found": ExecutionNotFoundError,
    "template_not_found": TemplateNotFoundError,
    "snapshot_not_found": SnapshotNotFoundError,
    "volume_not_found": VolumeNotFoundError,
    "route_not_found": RouteNotFoundError,
    "method_not_allowed": RouteNotFoundError,
    "already_exists": AlreadyExistsError,
    "conflict": ConflictError,
    "sandbox_not_ready": SandboxNotReadyError,
    "template_in_use": TemplateInUseError,
    "snapshot_in_use": SnapshotInUseError,
    "snapshot_mismatch": SnapshotMismatchError,
    "volume_in_use": VolumeInUseError,
    "file_not_found": SandboxFileNotFoundError,
    "file_exists": SandboxFileExistsError,
    "not_a_directory": SandboxNotADirectoryError,
    "is_a_directory": SandboxIsADirectoryError,
    "directory_not_empty": DirectoryNotEmptyError,
    "permission_denied": PermissionDeniedError,
    "read_only": ReadOnlyError,
    "too_many_links": TooManyLinksError,
    "user_unknown": UserUnknownError,
    "workdir_not_found": WorkdirNotFoundError,
    "command_not_found": CommandNotFoundError,
    "command_not_executable": CommandNotExecutableError,
    "arguments_too_long": ArgumentsTooLongError,
    "process_limit": ProcessLimitError,
    "open_file_limit": OpenFileLimitError,
    "disk_full": DiskFullError,
    "memory_limit": MemoryLimitError,
    "sandbox_io": ApiError,
    "capacity": CapacityError,
    "rate_limited": RateLimitedError,
    "runtime_unavailable": RuntimeUnavailableError,
    "start_failed": StartFailedError,
    "sandbox_ended": SandboxEndedError,
    "preview_unreachable": PreviewUnreachableError,
    "agent_protocol": ServerError,
    "timeout": ServerTimeoutError,
    "cancelled": ApiError,
    "unsupported": UnsupportedError,
    "unavailable": UnavailableError,
    "corrupt": ServerError,
    "io": ServerError,
    "internal": ServerError,
}


def error_from_answer(status: int, headers: Mapping[str, str], body: bytes) -> GloveboxError:
    """The error that an answer with a failing status stands for."""
    try:
        fields: Dict[str, Any] = json.loads(body)["error"]
        code = str(fields["code"])
    except (ValueError, TypeError, KeyError):
        return ProtocolError(f"status {status} without an error of the API: {body[:200]!r}")
    try:
        retry_after: Optional[float] = float(headers["retry-after"])
    except (KeyError, ValueError):
        retry_after = None
    return ERROR_CLASSES.get(code, ApiError)(
        code, str(fields.get("message", code)), status=status, advice=str(fields.get("hint", "")),
        request_id=headers.get("x-request-id", ""), is_retryable=fields.get("retryable") is True,
        fault=str(fields.get("fault", "platform")), details=fields.get("details") or {}, retry_after=retry_after)
