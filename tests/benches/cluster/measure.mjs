// The measurements of a peer, the same for all: `one` runs a job to its end, `wide` a job with many
// children.

export async function measure(one, wide, [jobs, inFlight, singles, children]) {
  const many = async (count) => {
    let begun = 0;
    const lane = async () => {
      while (begun++ < count) await one();
    };
    await Promise.all(Array.from({ length: inFlight }, lane));
  };
  const timed = async (work) => {
    const began = performance.now();
    await work();
    return performance.now() - began;
  };
  await many(jobs / 10);
  const rate = jobs / ((await timed(() => many(jobs))) / 1000);
  const times = [];
  for (let n = 0; n < singles; n++) times.push(await timed(one));
  times.sort((a, b) => a - b);
  const percentile = (percent) => times[Math.floor(((times.length - 1) * percent) / 100)];
  const wide_ms = await timed(() => wide(children));
  console.log(JSON.stringify({ rate, p50_ms: percentile(50), p99_ms: percentile(99), wide_ms }));
  process.exit(0);
}
