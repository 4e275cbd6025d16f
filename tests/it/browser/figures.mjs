// The figures of a large run on the page (docs/performance.md): 5,000 agents, 200 of them working.
// Not a test: `scripts/bench page` runs it.
import { Measure } from "./measure.mjs";
import { until } from "./page.mjs";

const WATCHED = 30_000;
/** An agent that calls a tool between two answers of two seconds each. */
const LEAF = {
    agent_id: "leaf", kind: "llm", model: "scripted", tools: ["fs.list"],
    script: [
        { say: "Scouts leave a trail, and those who find food make it stronger on their way back.", ms: 2000, call: [{ tool: "fs.list", arguments: {} }] },
        { say: "So the shortest way has the strongest trail.", ms: 2000 },
    ],
};

export default async function figures(place) {
    const { client } = place;
    await client.apply(LEAF);
    const trace = await client.submit({ goal: "A tree of 5,000 agents", agent_id: "tree", child_id: "root", max_cost_usd: 500, timeout_ms: 900_000, inputs: { depth: 2, width: 70, leaf: "leaf" } });
    const measure = await Measure.begin(place);
    const { anna, say, told } = measure;
    // The whole second level is spawned, and every slot is in use.
    const workers = async () => (await client.ask("GET", "workers")).reduce((sum, one) => sum + one.running, 0);
    await until("200 agents are at work", async () => (await workers()) >= 190);
    await measure.floor();
    await anna.go("");
    say("the list of runs: first paint, page", told(await measure.painted()));
    for (const [view, at] of [["tree", ""], ["money", "/money"]]) {
        await anna.go(`runs/${trace}${at}`, "#live:text('● live')");
        say(`${view}, 200 at work: first paint, page`, told(await measure.painted()));
        await measure.watched(`${view}, 200 at work`, WATCHED, async () => `; at work at the end ${await workers()}`);
        say(`${view}, 200 at work: memory of the browser`, await measure.heap());
    }
    say("memory of the gateway", measure.memory());
    await client.reaches(trace, "completed", 900_000);
    await anna.go(`runs/${trace}`, "#head .mark.good");
    say("5,000 agents, ended: first paint, page", told(await measure.painted()));
    const fold = anna.find(".fold button").nth(40);
    const began = performance.now();
    await fold.click();
    await until("the rows of the branch are shown", async () => (await anna.count(".row")) > 130);
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
    say("memory of the browser", await measure.heap());
    for (const view of ["timeline", "money", "receipt", "events"]) {
        await anna.go(`runs/${trace}/${view}`);
        say(`${view}, 5,000 agents: first paint, page`, told(await measure.painted()));
    }
    say("memory of the gateway", measure.memory());
    await anna.leave();
}
