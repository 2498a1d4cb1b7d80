// SPDX-License-Identifier: Apache-2.0
// The JavaScript kernel. Cells run in the main thread, in V8's own REPL mode: await at top level, and a later cell may declare a
// name again. A worker reads the requests, so that it can stop a loop that never ends through the inspector.
'use strict';
const inspector = require('node:inspector');
const fs = require('node:fs');
const { Worker } = require('node:worker_threads');
const util = require('node:util');
const crypto = require('node:crypto');
const path = require('node:path');
const url = require('node:url');
const reports = Number(process.argv[1]);
process.argv.splice(1);

const send = (message) => {
  const line = Buffer.from(`\n${JSON.stringify(message)}\n`);  // whatever a cell has written there before
  for (let at = 0; at < line.length;) {
    try {
      at += fs.writeSync(reports, line, at);
    } catch (error) {
      if (error.code !== 'EAGAIN') throw error;
    }
  }
};

const isPlain = (value) => value !== null && typeof value === 'object' &&
    (Array.isArray(value) || [Object.prototype, null].includes(Object.getPrototypeOf(value)));
const representations = (value) => {
  const data = { 'text/plain': typeof value === 'string' ? value : util.inspect(value) };
  if (isPlain(value)) {
    try {
      const text = JSON.stringify(value);
      if (text !== undefined && text.length < 1 << 20) data['application/json'] = JSON.parse(text);
    } catch {}  // circular, or a toJSON of its own that throws
  }
  return data;
};

// Shows a value in the middle of a cell; with a type, in that form: display('<b>x</b>', 'text/html').
globalThis.display = (value, type) => {
  const portable = Buffer.isBuffer(value) || value instanceof Uint8Array ? Buffer.from(value).toString('base64') : value;
  send({ event: 'result', main: false, data: type ? { [type]: portable } : representations(value) });
};

// After a restore others may go on from the same memory: nothing random may come from what is in it.
const reseed = () => {
  const fresh = (size) => {
    const fd = fs.openSync('/dev/urandom', 'r');
    const bytes = Buffer.alloc(size);
    for (let at = 0; at < size;) at += fs.readSync(fd, bytes, at, size - at, null);
    fs.closeSync(fd);
    return bytes;
  };
  const fill = (view, offset = 0, size = view.byteLength - offset) => {
    fresh(size).copy(Buffer.from(view.buffer ?? view, view.byteOffset ?? 0, view.byteLength), offset);
    return view;
  };
  let state = Array.from({ length: 4 }, (_, i) => fresh(16).readUInt32LE(i * 4));
  Math.random = () => {  // xoshiro128**
    const next = () => {
      const rotate = (x, k) => (x << k) | (x >>> (32 - k));
      const result = Math.imul(rotate(Math.imul(state[1], 5), 7), 9) >>> 0;
      const t = state[1] << 9;
      state[2] ^= state[0]; state[3] ^= state[1]; state[1] ^= state[2]; state[0] ^= state[3]; state[2] ^= t;
      state[3] = rotate(state[3], 11);
      return result;
    };
    return ((next() >>> 5) * 67108864 + (next() >>> 6)) / 9007199254740992;
  };
  const later = (callback, make) => callback ? void setImmediate(() => callback(null, make())) : make();
  crypto.randomBytes = crypto.pseudoRandomBytes = (size, callback) => later(callback, () => fresh(size));
  crypto.randomFillSync = fill;
  crypto.randomFill = (view, ...rest) => { const callback = rest.pop(); later(callback, () => fill(view, ...rest)); };
  crypto.randomInt = (min, max, callback) => {
    if (max === undefined || typeof max === 'function') [min, max, callback] = [0, min, max];
    return later(callback, () => {
      const range = max - min, limit = 2 ** 48 - (2 ** 48 % range);
      for (;;) {
        const number = fresh(6).readUIntLE(0, 6);
        if (number < limit) return min + (number % range);
      }
    });
  };
  crypto.randomUUID = () => {
    const bytes = fresh(16);
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    return bytes.toString('hex').replace(/(.{8})(.{4})(.{4})(.{4})(.{12})/, '$1-$2-$3-$4-$5');
  };
  crypto.webcrypto.getRandomValues = (view) => fill(view);
  crypto.webcrypto.randomUUID = crypto.randomUUID;
  require('node:module').syncBuiltinESMExports();
  send({ event: 'reseeded' });
};

// What keeps a program alive, and is not the kernel's own.
const isBusy = () => process.getActiveResourcesInfo()
    .some((kind) => /^(Timeout|Immediate|TCP|Process|UDP|FSReq|GetAddrInfo|TLS)/.test(kind));

const isCell = (line) => !/\(?(node:|\[eval\])/.test(line);
const describe = (error) => {
  if (!util.types.isNativeError(error)) return { name: 'Error', value: `Uncaught ${util.inspect(error)}`, traceback: '' };
  const stack = String(error.stack ?? error).split('\n').filter(isCell).join('\n').replaceAll('<anonymous>:', 'cell:');
  return { name: String(error.name), value: String(error.message), traceback: stack };
};

// ---- Cells ----

const session = new inspector.Session();
session.connect();

// `import` declarations are for modules; what they mean can be had in a cell, too.
const withImports = (code) => code.replace(
    /(^|;)([ \t]*)import\s+(?:([\w$]+)\s*,?\s*)?(?:\*\s+as\s+([\w$]+)|(\{[^}]*\}))?\s*(?:from\s+)?(['"][^'"\n]+['"])/gm,
    (all, before, space, name, star, names, from) => {
      const indent = before + space;
      if (!name && !star && !names) return `${indent}await __import(${from});`;
      const parts = [];
      if (star) parts.push(`${star} = await __import(${from})`);
      if (name) parts.push(`${name} = (await __import(${from})).default`);
      if (names) parts.push(`${names.replace(/\bas\b/g, ':')} = await __import(${from})`);
      return `${indent}var ${parts.join(', ')};`;
    }).replace(/(^|[^\w$.'"`])import\s*\(/gm, '$1__import(');

globalThis.__import = (name) => {
  if (/^\.{0,2}\//.test(name)) return import(url.pathToFileURL(path.resolve(name)).href);
  if (name.startsWith('node:')) return import(name);
  let found = name;
  try {
    found = require.resolve(name, { paths: [process.cwd(), ...module.paths] });
  } catch {}  // import() says what is wrong
  return import(path.isAbsolute(found) ? url.pathToFileURL(found).href : found);
};
let shown;
globalThis.__show = (value) => { shown = value; };
for (const name of ['__import', '__show']) Object.defineProperty(globalThis, name, { enumerable: false });

// The value behind an inspector's description of it.
const valueOf = (remote) => {
  if (remote.type === 'undefined') return undefined;
  if (!remote.objectId) return remote.unserializableValue ? (0, eval)(remote.unserializableValue) : remote.value;
  session.post('Runtime.callFunctionOn', { objectId: remote.objectId, functionDeclaration: 'function() { __show(this); }' });
  const value = shown;
  shown = undefined;
  return remote.type === 'symbol' ? value.valueOf() : value;
};

const report = (failure, answer) => {
  if (failure) return send({ event: 'error', name: 'Error', value: String(failure.message), traceback: '' });
  const { result, exceptionDetails } = answer;
  if (exceptionDetails) {
    if (!exceptionDetails.exception) return send({ event: 'error', name: 'Error', value: exceptionDetails.text, traceback: '' });
    return send({ event: 'error', ...describe(valueOf(exceptionDetails.exception)) });
  }
  const value = valueOf(result);
  if (value !== undefined) send({ event: 'result', main: true, data: representations(value) });
};

let count = 1, finish = null;
const run = ({ code, env, cwd }) => {
  send({ event: 'start', count });
  const before = Object.entries(env).map(([name]) => [name, process.env[name]]);
  let isOver = false;
  finish = (failure, answer) => {
    if (isOver) return;  // it was given up, and comes to its end now
    isOver = true;
    finish = null;
    try {
      report(failure, answer);
    } catch (error) {
      send({ event: 'error', ...describe(error) });
    }
    for (const [name, value] of before) {
      if (value === undefined) delete process.env[name];
      else process.env[name] = value;
    }
    session.post('Runtime.releaseObjectGroup', { objectGroup: 'cell' });
    send({ event: 'end', count: count++, busy: isBusy() });
  };
  try {
    Object.assign(process.env, env);
    if (cwd) process.chdir(cwd);
  } catch (error) {
    send({ event: 'error', ...describe(error) });
    return finish(null, { result: { type: 'undefined' } });
  }
  session.post('Runtime.evaluate', { expression: withImports(code), replMode: true, awaitPromise: true, objectGroup: 'cell' }, finish);
};

// Node would wait until the worker's inspector lets go, and that for its standard input: it says how it ends, and does.
process.exit = (code) => {
  if (code !== undefined) process.exitCode = code;
  try {
    process.emit('exit', process.exitCode ?? 0);
  } finally {
    send({ event: 'leaving', status: Number(process.exitCode ?? 0) & 255 });
    process.kill(process.pid, 'SIGKILL');
  }
};

// An error that no cell waits for must not end the kernel.
const complain = (what, error) => console.error(what, util.types.isNativeError(error) ? describe(error).traceback : error);
process.on('uncaughtException', (error) => complain('Uncaught', error));
process.on('unhandledRejection', (error) => complain('Uncaught (in promise)', error));

// ---- The worker: requests, and what stops a loop that never ends ----

function listen() {
  const { Session } = require('node:inspector');
  const { parentPort } = require('node:worker_threads');
  const session = new Session();
  session.connectToMainThread();
  let rest = [];
  require('node:fs').createReadStream('', { fd: 0 }).on('data', (data) => {
    for (let at; (at = data.indexOf(10)) >= 0; data = data.subarray(at + 1)) {
      const request = JSON.parse(Buffer.concat([...rest, data.subarray(0, at)]).toString());
      rest = [];
      if (request.interrupt) session.post('Runtime.terminateExecution', () => {});
      parentPort.postMessage(request);
    }
    rest.push(data);
  }).on('end', () => process.exit(0));
}

const worker = new Worker(`(${listen})()`, { eval: true });
worker.on('exit', () => process.exit(0));
worker.on('message', (request) => {
  if (request.environment) Object.assign(process.env, request.environment);
  if (request.run) run(request.run);
  if (request.interrupt && finish) finish({ message: 'interrupted' });  // it waits, and runs no code that could be terminated
  if (request.reseed !== undefined) reseed();
  if (request.busy) send({ event: 'busy', busy: isBusy() });
});
send({ event: 'ready' });
