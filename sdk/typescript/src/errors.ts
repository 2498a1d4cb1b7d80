// SPDX-License-Identifier: Apache-2.0

/** Everything this package throws, except the reason of an AbortSignal and wrong arguments (TypeError). */
export class GloveboxError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** No address or key for the server could be found. */
export class SettingsError extends GloveboxError {}

/** The server could not be reached, or the connection broke. */
export class ConnectionError extends GloveboxError {
  /** False: nothing was sent, so the server cannot have acted on it. */
  readonly sent: boolean;
  constructor(message: string, sent: boolean, options?: ErrorOptions) {
    super(message, options);
    this.sent = sent;
  }
}

/** The server was silent for longer than `idleTimeoutMs`, or did not accept the connection in `connectTimeoutMs`. */
export class ConnectionTimeoutError extends ConnectionError {}

/** An answer that is not what the API promises: something else listens there, or a proxy changed it. */
export class ProtocolError extends GloveboxError {}

export interface ApiErrorFields {
  code: string;
  message: string;
  status: number;
  advice: string;
  requestId: string;
  isRetryable: boolean;
  fault: "caller" | "sandbox" | "platform";
  details: Record<string, string>;
  /** Seconds, when the server said so. */
  retryAfter?: number | undefined;
}

/** The server refused the call, or could not do it. docs/errors.md lists the codes. */
export class ApiError extends GloveboxError implements ApiErrorFields {
  readonly code: string;
  readonly status: number;
  readonly advice: string;
  readonly requestId: string;
  readonly isRetryable: boolean;
  readonly fault: "caller" | "sandbox" | "platform";
  readonly details: Record<string, string>;
  readonly retryAfter: number | undefined;

  constructor(fields: ApiErrorFields) {
    super(fields.message);
    this.code = fields.code;
    this.status = fields.status;
    this.advice = fields.advice;
    this.requestId = fields.requestId;
    this.isRetryable = fields.isRetryable;
    this.fault = fields.fault;
    this.details = fields.details;
    this.retryAfter = fields.retryAfter;
  }
  override toString(): string {
    return `${this.name}: ${this.message} (${this.code}; ${this.advice} request ${this.requestId})`;
  }
}

export class InvalidArgumentError extends ApiError {}
export class InvalidPathError extends InvalidArgumentError {}
export class TooManyLinksError extends InvalidArgumentError {}
export class UserUnknownError extends InvalidArgumentError {}
export class WorkdirNotFoundError extends InvalidArgumentError {}
export class CommandNotFoundError extends InvalidArgumentError {}
export class CommandNotExecutableError extends InvalidArgumentError {}
export class ArgumentsTooLongError extends InvalidArgumentError {}
export class PayloadTooLargeError extends InvalidArgumentError {}
export class UnauthenticatedError extends ApiError {}
export class ForbiddenError extends ApiError {}
export class PermissionDeniedError extends ForbiddenError {}
export class ReadOnlyError extends ForbiddenError {}
export class NotFoundError extends ApiError {}
export class SandboxNotFoundError extends NotFoundError {}
export class ExecutionNotFoundError extends NotFoundError {}
export class TemplateNotFoundError extends NotFoundError {}
export class SnapshotNotFoundError extends NotFoundError {}
export class VolumeNotFoundError extends NotFoundError {}
export class FileNotFoundError extends NotFoundError {}
export class ConflictError extends ApiError {}
export class AlreadyExistsError extends ConflictError {}
export class FileExistsError extends ConflictError {}
export class NotADirectoryError extends ConflictError {}
export class IsADirectoryError extends ConflictError {}
export class DirectoryNotEmptyError extends ConflictError {}
export class SandboxNotReadyError extends ConflictError {}
export class TemplateInUseError extends ConflictError {}
export class SnapshotInUseError extends ConflictError {}
export class SnapshotMismatchError extends ConflictError {}
export class VolumeInUseError extends ConflictError {}
export class SandboxEndedError extends ApiError {}
/** A limit of the sandbox itself is reached. */
export class SandboxLimitError extends ApiError {}
export class ProcessLimitError extends SandboxLimitError {}
export class OpenFileLimitError extends SandboxLimitError {}
export class DiskFullError extends SandboxLimitError {}
export class MemoryLimitError extends SandboxLimitError {}
export class CapacityError extends ApiError {}
export class RateLimitedError extends ApiError {}
/** This server does not have what was asked for. */
export class UnsupportedError extends ApiError {}
export class RouteNotFoundError extends UnsupportedError {}
export class RuntimeUnavailableError extends ApiError {}
export class PreviewUnreachableError extends ApiError {}
/** The server, its host or the sandbox's machinery failed. */
export class ServerError extends ApiError {}
export class StartFailedError extends ServerError {}
export class ServerTimeoutError extends ServerError {}
export class UnavailableError extends ServerError {}

/** The class for each code. A code that is newer than this package is an `ApiError`. */
export const errorClasses: Readonly<Record<string, typeof ApiError>> = {
  invalid_argument: InvalidArgumentError,
  invalid_path: InvalidPathError,
  payload_too_large: PayloadTooLargeError,
  unauthenticated: UnauthenticatedError,
  forbidden: ForbiddenError,
  not_found: NotFoundError,
  sandbox_not_found: SandboxNotFoundError,
  execution_not_found: ExecutionNotFoundError,
  template_not_found: TemplateNotFoundError,
  snapshot_not_found: SnapshotNotFoundError,
  volume_not_found: VolumeNotFoundError,
  route_not_found: RouteNotFoundError,
  method_not_allowed: RouteNotFoundError,
  already_exists: AlreadyExistsError,
  conflict: ConflictError,
  sandbox_not_ready: SandboxNotReadyError,
  template_in_use: TemplateInUseError,
  snapshot_in_use: SnapshotInUseError,
  snapshot_mismatch: SnapshotMismatchError,
  volume_in_use: VolumeInUseError,
  file_not_found: FileNotFoundError,
  file_exists: FileExistsError,
  not_a_directory: NotADirectoryError,
  is_a_directory: IsADirectoryError,
  directory_not_empty: DirectoryNotEmptyError,
  permission_denied: PermissionDeniedError,
  read_only: ReadOnlyError,
  too_many_links: TooManyLinksError,
  user_unknown: UserUnknownError,
  workdir_not_found: WorkdirNotFoundError,
  command_not_found: CommandNotFoundError,
  command_not_executable: CommandNotExecutableError,
  arguments_too_long: ArgumentsTooLongError,
  process_limit: ProcessLimitError,
  open_file_limit: OpenFileLimitError,
  disk_full: DiskFullError,
  memory_limit: MemoryLimitError,
  sandbox_io: ApiError,
  capacity: CapacityError,
  rate_limited: RateLimitedError,
  runtime_unavailable: RuntimeUnavailableError,
  start_failed: StartFailedError,
  sandbox_ended: SandboxEndedError,
  preview_unreachable: PreviewUnreachableError,
  agent_protocol: ServerError,
  timeout: ServerTimeoutError,
  cancelled: ApiError,
  unsupported: UnsupportedError,
  unavailable: UnavailableError,
  corrupt: ServerError,
  io: ServerError,
  internal: ServerError,
};

const text = (value: unknown, otherwise: string): string => (typeof value === "string" ? value : otherwise);

/** @internal The error that an answer with a failing status stands for. */
export function errorFromAnswer(status: number, headers: Record<string, string | string[] | undefined>, body: string): GloveboxError {
  let fields: Record<string, unknown> | undefined;
  try {
    fields = (JSON.parse(body) as { error?: Record<string, unknown> }).error;
  } catch {
    fields = undefined;
  }
  const requestId = text(headers["x-request-id"], "");
  if (typeof fields?.code !== "string") {
    return new ProtocolError(`status ${status} without an error of the API: ${body.slice(0, 200)}`);
  }
  const retryAfter = Number(headers["retry-after"]);
  return new (errorClasses[fields.code] ?? ApiError)({
    code: fields.code,
    message: text(fields.message, fields.code),
    status,
    advice: text(fields.hint, ""),
    requestId,
    isRetryable: fields.retryable === true,
    fault: (fields.fault ?? "platform") as ApiErrorFields["fault"],
    details: (fields.details ?? {}) as Record<string, string>,
    retryAfter: Number.isFinite(retryAfter) ? retryAfter : undefined,
  });
}
