// The figures of a large run on the page (docs/performance.md): 5,000 agents, 200 of them at work. No test: `scripts/bench page` runs it.
import { readFileSync } from "node:fs";
import { Person, until } from "./page.mjs";

const WATCHED = 30_000;
/** An agent that calls a tool between two answers, each of which takes two seconds. */
const LEAF = {
    agent_id: "leaf", kind: "llm", model: "scripted", tools: ["fs.list"],
    script: [
        { say: "Scouts leave a trail, and those who find food make it stronger on their way back.", ms: 2000, call: [{ tool: "fs.list", arguments: {} }] },
        { say: "So the shortest way has the strongest trail.", ms: 2000 },
    ],
};

export default async function figures(place) {
    const { client } = place;
    const say = (what, value) => console.log(`${what.padEnd(66)} ${value}`);
    await client.apply(LEAF);
    const trace = await client.submit({ goal: "A tree of 5,000 agents", agent_id: "tree", child_id: "root", max_cost_usd: 500, timeout_ms: 900_000, inputs: { depth: 2, width: 70, leaf: "leaf" } });
    const anna = await Person.enter(place, place.tokens.anna);
    const cdp = await anna.context.newCDPSession(anna.page);
    const asked = async (name) => (await cdp.send("Performance.getMetrics")).metrics.find((one) => one.name === name).value;
    const heap = async () => {
        await cdp.send("HeapProfiler.collectGarbage");
        return `${((await asked("JSHeapUsedSize")) / 2 ** 20).toFixed(1)} MiB, ${await asked("Nodes")} nodes`;
    };
    const memory = () => `${Math.round(Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${process.env.TRELLIS_BENCH_PID}/status`, "utf8"))[1]) / 1024)} MiB`;
    const painted = () => anna.page.evaluate(async () => {
        while (!performance.getEntriesByName("first-contentful-paint").length) await new Promise((drawn) => requestAnimationFrame(drawn));
        const [visit] = performance.getEntriesByType("navigation");
        return { paint: Math.round(performance.getEntriesByName("first-contentful-paint")[0].startTime), answer: Math.round(visit.responseStart), bytes: visit.encodedBodySize };
    });
    const told = ({ paint, answer, bytes }) => `${paint} ms (first byte ${answer} ms), ${Math.round(bytes / 1024)} KiB`;
    await Promise.all(["Performance", "Network"].map((domain) => cdp.send(`${domain}.enable`)));
    let bytes = 0;
    cdp.on("Network.dataReceived", ({ dataLength }) => { bytes += dataLength; });

    // All of the second level is spawned, and as many work as there are slots.
    const workers = async () => (await client.ask("GET", "workers")).reduce((sum, one) => sum + one.running, 0);
    await until("200 agents are at work", async () => (await workers()) >= 190);
    await anna.go("");
    // The least that the same server and browser can show.
    anna.allow("status of 404");
    await anna.page.goto(`${place.url}runs/${"0".repeat(31)}1`);
    say("the floor, a page without data: first paint, page", told(await painted()));
    await anna.go("");
    say("the list of runs: first paint, page", told(await painted()));
    for (const [view, at] of [["tree", ""], ["money", "/money"]]) {
        await anna.go(`runs/${trace}${at}`, "#live:text('● live')");
        say(`${view}, 200 at work: first paint, page`, told(await painted()));
        await anna.page.evaluate(() => { window.longest = 0; new PerformanceObserver((list) => { for (const { duration } of list.getEntries()) window.longest = Math.max(window.longest, duration); }).observe({ type: "longtask" }); });
        bytes = 0;
        await new Promise((woken) => setTimeout(woken, WATCHED));
        say(`${view}, 200 at work: bytes a second; at work at the end`, `${Math.round(bytes * 1000 / WATCHED / 1024)} KiB; ${await workers()}`);
        say(`${view}, 200 at work: longest block of the browser`, `${Math.round(await anna.page.evaluate(() => window.longest))} ms`);
        say(`${view}, 200 at work: memory of the browser`, await heap());
    }
    say("memory of the gateway", memory());
    await client.reaches(trace, "completed", 900_000);
    await anna.go(`runs/${trace}`, "#head .mark.good");
    say("5,000 agents, ended: first paint, page", told(await painted()));
    const fold = anna.find(".fold button").nth(40);
    const began = performance.now();
    await fold.click();
    await until("its rows are there", async () => (await anna.count(".row")) > 130);
    say("a folded branch of 70 is opened in", `${Math.round(performance.now() - began)} ms`);
    const slow = await anna.page.evaluate(async () => {
        let [last, slowest] = [performance.now(), 0];
        for (let y = 0; y < document.body.scrollHeight; y += 200) {
            scrollTo(0, y);
            await new Promise((drawn) => requestAnimationFrame(drawn));
            [slowest, last] = [Math.max(slowest, performance.now() - last), performance.now()];
        }
        return Math.round(slowest);
    });
    say("scrolled through: the slowest frame", `${slow} ms`);
    say("memory of the browser", await heap());
    for (const view of ["timeline", "money", "receipt", "events"]) {
        await anna.go(`runs/${trace}/${view}`);
        say(`${view}, 5,000 agents: first paint, page`, told(await painted()));
    }
    say("memory of the gateway", memory());
    await anna.leave();
}
