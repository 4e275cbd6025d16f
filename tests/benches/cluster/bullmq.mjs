// BullMQ as a peer of the benchmark: one process with a worker, and one that submits and waits for the ends, as in the
// measurements of Trellis. Redis keeps what it acknowledges (the benchmark starts it with appendfsync always).
//
//   node bullmq.mjs worker <redis port>
//   node bullmq.mjs client <redis port> <jobs> <in flight> <singles> <wide>     prints one line of JSON

import { createRequire } from "node:module";

const require = createRequire(process.env.TRELLIS_BULLMQ + "/");
const { FlowProducer, Queue, QueueEvents, Worker } = require("bullmq");
const [mode, port, ...numbers] = process.argv.slice(2);
const connection = { host: "127.0.0.1", port: Number(port), maxRetriesPerRequest: null };

async function work() {
  const worker = new Worker("bench", async (job) => job.data.goal, { connection, concurrency: 512 });
  await worker.waitUntilReady();
  console.log("ready");
}

async function measure([jobs, inFlight, singles, wide]) {
  const queue = new Queue("bench", { connection });
  const flows = new FlowProducer({ connection });
  const events = new QueueEvents("bench", { connection });
  [queue, events].forEach((emitter) => emitter.setMaxListeners(0));
  await events.waitUntilReady();
  const one = async () => (await queue.add("one", { goal: "hello" })).waitUntilFinished(events);
  const many = async (count) => {
    let begun = 0;
    const lane = async () => {
      while (begun++ < count) await one();
    };
    await Promise.all(Array.from({ length: inFlight }, lane));
  };
  await many(jobs / 10);
  let began = performance.now();
  await many(jobs);
  const rate = jobs / ((performance.now() - began) / 1000);
  const times = [];
  for (let n = 0; n < singles; n++) {
    began = performance.now();
    await one();
    times.push(performance.now() - began);
  }
  times.sort((a, b) => a - b);
  const percentile = (percent) => times[Math.floor(((times.length - 1) * percent) / 100)];
  const child = { name: "child", queueName: "bench", data: { goal: "hello" } };
  began = performance.now();
  const flow = await flows.add({ name: "parent", queueName: "bench", data: {}, children: Array(wide).fill(child) });
  await flow.job.waitUntilFinished(events);
  const wideMs = performance.now() - began;
  console.log(JSON.stringify({ rate, p50_ms: percentile(50), p99_ms: percentile(99), wide_ms: wideMs }));
  process.exit(0);
}

await (mode === "worker" ? work() : measure(numbers.map(Number)));
