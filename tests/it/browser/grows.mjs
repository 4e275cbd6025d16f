// A run that is watched from its start: at its end the page equals a freshly loaded page,
// independent of the updates in between.
import assert from "node:assert/strict";
import { Person, until } from "./page.mjs";

const LEAF = { agent_id: "leaf", kind: "llm", model: "scripted", description: "Says two things.", tools: [], script: [{ say: "first {goal}", ms: 400 }] };
const spawn = (goal) => ({ tool: "spawn", arguments: { agent_id: "leaf", goal } });
const BOSS = {
    agent_id: "boss", kind: "llm", model: "scripted", description: "Has others work.", tools: ["spawn"],
    script: [{ call: ["one", "two", "three"].map(spawn), ms: 400 }, { call: ["four", "five"].map(spawn), ms: 400 }, { say: "done", ms: 400 }],
};
const GRAPH = {
    name: "chain", mode: "sequential", on_partial_success: "continue",
    steps: [
        { id: "one", agent_id: "sleep", task_description: "Wait", output_to: "one" },
        { id: "two", agent_id: "fail", task_description: "Fail" , output_to: "two" },
        { id: "three", agent_id: "echo", task_description: "Go on", input_from: ["two"] },
        { id: "four", agent_id: "sleep", task_description: "Wait again" },
    ],
};

/** The tree without its transient parts: glow and times. */
const tree = (anna) => anna.page.evaluate(() => {
    const copy = document.querySelector("ul.tree").cloneNode(true);
    for (const one of copy.querySelectorAll(".new")) one.classList.remove("new");
    for (const one of copy.querySelectorAll("[class='']")) one.removeAttribute("class");
    for (const one of copy.querySelectorAll("time")) one.remove();
    return copy.outerHTML;
});

/** Makes the page believe that its tab is hidden or visible. */
const isHidden = (anna, hidden) => anna.page.evaluate((hidden) => {
    Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
}, hidden);

export default async function grows(place) {
    const { client } = place;
    const anna = await Person.enter(place, place.tokens.anna);
    for (const agent of [LEAF, BOSS]) await client.apply(agent);
    const watched = async (what, run, act) => {
        await anna.go(`runs/${run}`, "#head");
        const isOver = async () => !/working|queued/.test(await anna.find("#head .state").textContent());
        // Before the first event and after the last one the stream's lamp is empty.
        await until(`${what} is shown live`, async () => (await anna.find("#live").textContent()) === "● live" || (await isOver()));
        await act?.(run);
        await until(`${what} has ended`, isOver);
        await until(`${what} is shown to its end`, async () => (await anna.find("#live").textContent()) === "");
        const last = await tree(anna);
        await anna.page.reload();
        await anna.sees("ul.tree");
        assert.equal(last, await tree(anna), what);
        return last;
    };
    const agents = await watched("an agent that spawns", await client.submit({ goal: "grow", agent_id: "boss", child_id: "b" }));
    assert.equal(agents.match(/id="r-/g).length, 6, "the page has all rows");
    const steps = await watched("a graph", await client.submit(GRAPH));
    assert.match(steps, /skipped/);
    await watched("a graph behind a hidden tab", await client.submit(GRAPH), async (run) => {
        await isHidden(anna, true);
        await until("the run has ended", async () => (await client.found(run))?.ended_at);
        await isHidden(anna, false);
    });
    await watched("an agent behind a tab that is hidden for a while", await client.submit({ goal: "grow", agent_id: "boss", child_id: "b" }), async () => {
        await isHidden(anna, true);
        await new Promise((wake) => setTimeout(wake, 1500));
        await isHidden(anna, false);
    });

    // The slider shows a past state, and later updates do not replace it.
    const paid = await client.submit({ goal: "Pay", agent_id: "spend", child_id: "p", inputs: { usd: 0.01, calls: 4, ms: 700 } });
    await anna.go(`runs/${paid}/money`, "#live:text('● live')");
    await until("the page shows spent money", async () => !(await anna.find("#head .money").textContent()).includes("$0.00 spent"));
    await anna.find("#at").fill("2");
    await anna.sees("output:has-text('2 of')");
    await anna.sees("#head .money:has-text('$0.00 spent')");
    await isHidden(anna, true);
    await isHidden(anna, false);
    await client.reaches(paid, "completed");
    assert.match(await anna.find("#head .money").textContent(), /\$0\.00 spent/);
    await anna.find("a:text('Now')").click();
    await anna.sees("#head .money:has-text('$0.04 spent')");
    await anna.leave();
}
