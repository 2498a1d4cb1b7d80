// SPDX-License-Identifier: Apache-2.0
import { ApiError } from "./errors.js";
import { toWire } from "./names.js";
import { type Pages, pages } from "./pages.js";
import { routes } from "./routes.js";
import { type CreateOptions, type ListOptions, Sandbox } from "./sandbox.js";
import type { ClientOptions } from "./settings.js";
import { Snapshots } from "./snapshots.js";
import { Transport } from "./transport.js";
import type {
  CreateKey, Info, Key, NetworkCheck, NetworkPolicy, Pool, Preset, RuntimeStatus, SandboxInfo, Template, Tier,
} from "./types.js";
import { Volumes } from "./volumes.js";

/** A server and a key for it. Connections are kept and shared; `close` gives them up. */
export class Glovebox {
  readonly #transport: Transport;
  readonly sandboxes: Sandboxes;
  readonly snapshots: Snapshots;
  readonly volumes: Volumes;
  readonly templates: Templates;
  /** Role admin. */
  readonly keys: Keys;
  readonly network: DefaultNetwork;

  constructor(options: ClientOptions = {}) {
    this.#transport = new Transport(options);
    this.sandboxes = new Sandboxes(this, this.#transport);
    this.snapshots = new Snapshots(this.#transport);
    this.volumes = new Volumes(this.#transport);
    this.templates = new Templates(this.#transport);
    this.keys = new Keys(this.#transport);
    this.network = new DefaultNetwork(this.#transport);
  }
  get url(): string {
    return this.#transport.url.href;
  }
  /** @internal */
  get transport(): Transport {
    return this.#transport;
  }

  /** Which tiers work on the server, strongest first, and what "auto" means there. */
  runtimes(): Promise<{ runtimes: RuntimeStatus[]; auto: Tier | null }> {
    return this.#transport.json(routes.listRuntimes);
  }
  info(): Promise<Info> {
    return this.#transport.json(routes.getInfo);
  }
  async version(): Promise<string> {
    return (await this.#transport.json<{ version: string }>(routes.getVersion)).version;
  }
  async isHealthy(): Promise<boolean> {
    return (await this.#transport.json<{ status: string }>(routes.getHealth)).status === "ok";
  }
  /** Whether sandboxes can be created. */
  async isReady(): Promise<boolean> {
    try {
      return (await this.#transport.json<{ status: string }>(routes.getReadiness)).status === "ready";
    } catch (error) {
      if (error instanceof ApiError && error.status === 503) return false;
      throw error;
    }
  }
  /** Ready sandboxes that are kept for create calls. Role admin. */
  async pool(): Promise<Pool[]> {
    return (await this.#transport.json<{ pools: Pool[] }>(routes.getPool)).pools;
  }
  /** In the text format of Prometheus. Role admin. */
  async metrics(): Promise<string> {
    return (await this.#transport.bytes(routes.metrics)).toString("utf8");
  }
  /** The server's own description of its API, as it is. */
  async openApi(): Promise<Record<string, unknown>> {
    return JSON.parse((await this.#transport.bytes(routes.getOpenApi)).toString("utf8")) as Record<string, unknown>;
  }
  close(): void {
    this.#transport.close();
  }
  [Symbol.dispose](): void {
    this.close();
  }
}

export class Sandboxes {
  readonly #client: Glovebox;
  readonly #transport: Transport;
  /** @internal */
  constructor(client: Glovebox, transport: Transport) {
    this.#client = client;
    this.#transport = transport;
  }
  /** Resolves when it is ready. A call that has to be repeated gives the same sandbox. */
  create(options: Omit<CreateOptions, "client"> = {}): Promise<Sandbox> {
    return Sandbox.create({ ...options, client: this.#client });
  }
  async get(id: string): Promise<Sandbox> {
    return new Sandbox(this.#client, await this.#transport.json<SandboxInfo>(routes.getSandbox, { params: { id } }));
  }
  /** The tenant's sandboxes, newest first; without `state`, all but ended ones. */
  list(options: ListOptions = {}): Pages<Sandbox> {
    const filter = Object.fromEntries(Object.entries(options.metadata ?? {}).map(([key, value]) => ["metadata." + key, value]));
    return pages(this.#transport, routes.listSandboxes, "sandboxes", {
      query: { state: options.state === undefined ? undefined : [options.state].flat(), metadata_filter: filter },
    }, (item) => new Sandbox(this.#client, item as SandboxInfo));
  }
}

export class Templates {
  readonly #transport: Transport;
  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }
  async list(): Promise<Template[]> {
    return (await this.#transport.json<{ templates: Template[] }>(routes.listTemplates)).templates;
  }
  /** By name, or `name@version-prefix`. */
  get(name: string): Promise<Template> {
    return this.#transport.json(routes.getTemplate, { params: { name } });
  }
  /** Role admin. */
  async remove(name: string): Promise<void> {
    await this.#transport.json(routes.removeTemplate, { params: { name } });
  }
}

export class Keys {
  readonly #transport: Transport;
  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }
  async list(): Promise<Key[]> {
    return (await this.#transport.json<{ keys: Key[] }>(routes.listKeys)).keys;
  }
  /** The answer is the only place where `key` is ever shown. */
  create(options: CreateKey): Promise<Key & { key: string }> {
    return this.#transport.json(routes.createKey, { body: toWire(options) });
  }
  async remove(id: string): Promise<void> {
    await this.#transport.json(routes.removeKey, { params: { id } });
  }
}

/** What sandboxes of the tenant may reach when they are created without `network`. */
export class DefaultNetwork {
  readonly #transport: Transport;
  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }
  /** Null: the operator's default. */
  async get(): Promise<NetworkPolicy | null> {
    return (await this.#transport.json<{ policy: NetworkPolicy | null }>(routes.getDefaultNetwork)).policy;
  }
  /** Role admin. */
  async set(policy: NetworkPolicy): Promise<NetworkPolicy | null> {
    return (await this.#transport.json<{ policy: NetworkPolicy | null }>(routes.setDefaultNetwork, { body: toWire(policy) })).policy;
  }
  /** Role admin. */
  async unset(): Promise<void> {
    await this.#transport.json(routes.unsetDefaultNetwork);
  }
  async presets(): Promise<Preset[]> {
    return (await this.#transport.json<{ presets: Preset[] }>(routes.listPresets)).presets;
  }
  /** Whether sandboxes can have a network, found out by making a link. Role admin. */
  check(): Promise<NetworkCheck> {
    return this.#transport.json(routes.checkNetwork);
  }
}
