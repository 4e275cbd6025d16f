// Restate as a peer of the benchmark: its server, a process with a service, and this process, which
// submits jobs and waits until they end, as in the measurements of Trellis. The server stores each
// call durably in its own log before it runs the call.
//
//   node restate.mjs <jobs> <in flight> <singles> <wide>     prints one line of JSON
//
// `TRELLIS_RESTATE` names the folder of its modules.

import { fork, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import http2 from "node:http2";
import { createRequire } from "node:module";
import net from "node:net";
import os from "node:os";
import path from "node:path";
import { measure } from "./measure.mjs";

const modules = process.env.TRELLIS_RESTATE;

async function serve() {
  // The SDK needs this function, which node has only from version 22 on.
  Promise.withResolvers ??= function () {
    const parts = {};
    parts.promise = new this((resolve, reject) => Object.assign(parts, { resolve, reject }));
    return parts;
  };
  const { createEndpointHandler, RestatePromise, serde, service } = createRequire(modules + "/")("@restatedev/restate-sdk");
  const child = { service: "bench", method: "one", parameter: "hello", inputSerde: serde.json, outputSerde: serde.json };
  const one = async (_, goal) => goal;
  const wide = async (context, count) =>
    (await RestatePromise.all(Array.from({ length: count }, () => context.genericCall(child)))).length;
  const services = [service({ name: "bench", handlers: { one, wide } })];
  const server = http2.createServer(createEndpointHandler({ services }));
  server.listen(0, "127.0.0.1", () => process.send(server.address().port));
}

async function freeAddress() {
  const socket = net.createServer().listen(0, "127.0.0.1");
  await new Promise((listening) => socket.once("listening", listening));
  const { port } = socket.address();
  await new Promise((closed) => socket.close(closed));
  return `127.0.0.1:${port}`;
}

async function post(url, value) {
  const headers = { "content-type": "application/json" };
  const answer = await fetch(url, { method: "POST", headers, body: JSON.stringify(value) });
  if (!answer.ok) throw new Error(await answer.text());
  return answer.json();
}

async function begin() {
  const folder = mkdtempSync(path.join(os.tmpdir(), "restate-"));
  const [ingress, admin, node] = [await freeAddress(), await freeAddress(), await freeAddress()];
  const env = {
    ...process.env,
    RESTATE_BASE_DIR: folder,
    RESTATE_INGRESS__BIND_ADDRESS: ingress,
    RESTATE_ADMIN__BIND_ADDRESS: admin,
    RESTATE_BIND_ADDRESS: node,
    RESTATE_DISABLE_TELEMETRY: "true",
    RESTATE_LOG_FILTER: "off",
  };
  const program = path.join(modules, "@restatedev/restate-server-linux-x64/bin/restate-server");
  const server = spawn(program, [], { env, stdio: "ignore" });
  const service = fork(process.argv[1], ["service"], { env: { ...process.env, RESTATE_LOGGING: "ERROR" } });
  const end = () => {
    [server, service].forEach((running) => running.kill("SIGKILL"));
    rmSync(folder, { recursive: true, force: true });
  };
  process.on("exit", end);
  const port = await new Promise((listens) => service.once("message", listens));
  for (let tries = 1; ; tries++) {
    try {
      await post(`http://${admin}/deployments`, { uri: `http://127.0.0.1:${port}` });
      break;
    } catch (error) {
      if (tries === 300) throw error;
      await new Promise((passed) => setTimeout(passed, 100));
    }
  }
  return (handler, value) => post(`http://${ingress}/bench/${handler}`, value);
}

async function submit(numbers) {
  const call = await begin();
  const wide = async (count) => {
    if ((await call("wide", count)) !== count) throw new Error("not all children ended");
  };
  await measure(() => call("one", "hello"), wide, numbers);
}

const words = process.argv.slice(2);
await (words[0] === "service" ? serve() : submit(words.map(Number)));
