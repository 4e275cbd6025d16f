// The figures of a deployment with 10,000 runs (docs/performance.md). Not a test:
// `scripts/bench page` runs it.
import { Measure } from "./measure.mjs";
import { Client, until } from "./page.mjs";

const RUNS = Number(process.env.TRELLIS_BENCH_RUNS ?? 10_000);
const AT_ONCE = 30;
const WATCHED = 30_000;
const NEW_A_SECOND = 20;

/** A submission; every tenth one spends money. */
const run = (number) => ({
    goal: `Look at house ${number} and say which colour it has`, labels: { street: `s${number % 100}` },
    ...(number % 10 ? { agent_id: "echo" } : { agent_id: "spend", inputs: { usd: 0.01 } }),
});

export default async function many(place) {
    const { client } = place;
    const measure = await Measure.begin(place);
    const { anna, say, told } = measure;
    const rest = () => new Promise((woken) => setTimeout(woken, 6000));

    let next = 0;
    const began = performance.now();
    // A gateway accepts 100 requests a second from one caller.
    const callers = Object.values(place.tokens).map((token) => new Client(place.url, token));
    const submits = async (caller) => {
        for (let number = next++; number < RUNS; number = next++)
            while (!(await caller.submit(run(number)).catch((error) => { if (!error.message.includes(": 429 ")) throw error; }))) await new Promise((woken) => setTimeout(woken, 250));
    };
    await Promise.all([...Array(AT_ONCE).keys()].map((one) => submits(callers[one % callers.length])));
    say(`${RUNS} runs are submitted in`, `${Math.round((performance.now() - began) / 1000)} s`);
    await until("all runs have ended", async () => (await client.ask("GET", "runs?status=working&status=submitted&limit=1")).runs.length === 0, 900_000);

    await measure.floor();
    const shown = async (what, path) => {
        await anna.go(path, "main#main");
        say(`${what}: first paint, page`, told(await measure.painted()));
    };
    await rest();
    await shown("the list of runs", "");
    const chart = async (what) => {
        await anna.sees(".today svg");
        const took = await anna.page.evaluate(() => {
            const [{ startTime, responseEnd }] = performance.getEntriesByType("resource").filter(({ name }) => name.endsWith("/today"));
            return [startTime, responseEnd].map(Math.round);
        });
        say(what, `asked for at ${took[0]} ms, there at ${took[1]} ms: ${await anna.find(".today span").first().textContent()}`);
    };
    await chart("the chart of what was spent, asked for anew");
    await anna.go("", "main#main");
    await chart("the chart of what was spent, 5 s after that at most");
    await shown("500 runs on a page", "?limit=500");
    await shown("those of one label", "?label=street%3Ds7");
    await shown("those of at least $0.01", "?min_cost_usd=0.01");
    await shown("those of an id", `?q=${(await client.ask("GET", "runs?limit=1")).runs[0].trace_id.slice(0, 8)}`);
    await shown("a search for what all goals have", "?q=which+colour");
    await shown(`a search for one of the newest 2,500`, `?q=house+${RUNS - 2000}`);
    await shown("a search for what no goal has", "?q=nowhere");

    // The first update contains all rows, so measuring begins after it.
    const looks = async (what) => {
        await anna.go("", "#live:text('● live')");
        await rest();
        await measure.watched(what, WATCHED);
    };
    await looks(`${RUNS} runs, nothing happens`);
    for (let number = 0; number < 50; number += 1) await client.submit({ goal: "Pay", agent_id: "spend", inputs: { usd: 0.001, calls: 20, ms: 2000 } });
    await looks(`${RUNS} runs, 50 of them at work and on the page`);
    const news = setInterval(() => client.submit(run(next++)).catch(() => {}), 1000 / NEW_A_SECOND);
    await looks(`${RUNS} runs, ${NEW_A_SECOND} more a second`);
    clearInterval(news);
    say("the list tells", await anna.find("#news").textContent());
    say("memory of the browser", await measure.heap());
    say("memory of the gateway", measure.memory());
    await anna.leave();
}
