// BullMQ as a peer of the benchmark: one process with a worker, and one that submits jobs and waits
// until they end, as in the measurements of Trellis. Redis does not lose acknowledged writes (the
// benchmark starts it with appendfsync always).
//
//   node bullmq.mjs worker <redis port>
//   node bullmq.mjs client <redis port> <jobs> <in flight> <singles> <wide>     prints one line of JSON

import { createRequire } from "node:module";
import { measure } from "./measure.mjs";

const require = createRequire(process.env.TRELLIS_BULLMQ + "/");
const { FlowProducer, Queue, QueueEvents, Worker } = require("bullmq");
const [mode, port, ...numbers] = process.argv.slice(2);
const connection = { host: "127.0.0.1", port: Number(port), maxRetriesPerRequest: null };

async function work() {
  const worker = new Worker("bench", async (job) => job.data.goal, { connection, concurrency: 512 });
  await worker.waitUntilReady();
  console.log("ready");
}

async function submit(numbers) {
  const queue = new Queue("bench", { connection });
  const flows = new FlowProducer({ connection });
  const events = new QueueEvents("bench", { connection });
  [queue, events].forEach((emitter) => emitter.setMaxListeners(0));
  await events.waitUntilReady();
  const one = async () => (await queue.add("one", { goal: "hello" })).waitUntilFinished(events);
  const child = { name: "child", queueName: "bench", data: { goal: "hello" } };
  const wide = async (count) => {
    const parent = { name: "parent", queueName: "bench", data: {}, children: Array(count).fill(child) };
    await (await flows.add(parent)).job.waitUntilFinished(events);
  };
  await measure(one, wide, numbers);
}

await (mode === "worker" ? work() : submit(numbers.map(Number)));
