// A run: its tree is folded, loaded, and updated with the run; the run is cancelled and its budget
// raised.
import assert from "node:assert/strict";
import { Person, until } from "./page.mjs";

/** A graph whose steps all wait for the first one, which asks a human. */
export function longGraph(steps) {
    const step = (number) => ({ id: `n${number}`, agent_id: number === 1 ? "ask" : "echo", task_description: `Do ${number}`, depends_on: number === 1 ? [] : ["n1"] });
    return { name: "long", mode: "parallel", steps: [...Array(steps)].map((_, place) => step(place + 1)) };
}

export default async function tree(place) {
    const { client } = place;
    const anna = await Person.enter(place, place.tokens.anna);
    const row = (child) => `#r-${child}`;

    // An open part is folded, and opened again.
    const deep = await client.finish({ goal: "grow", agent_id: "tree", child_id: "t", inputs: { depth: 3, width: 1 } });
    await anna.go(`runs/${deep}`, row("t-1-1-1"), ".result pre");
    const fold = (child) => anna.find(`[aria-controls='u-${child}']`);
    await fold("t-1").click();
    await until("the branch is folded", async () => !(await anna.find(row("t-1-1-1")).isVisible()));
    assert.equal(await fold("t-1").getAttribute("aria-expanded"), "false");
    await anna.sees(row("t-1"));
    await fold("t-1").click();
    await anna.sees(row("t-1-1-1"));

    // Deep parts are loaded when they are opened.
    const wide = await client.finish({ goal: "grow", agent_id: "tree", child_id: "t", inputs: { depth: 2, width: 20 } });
    await anna.go(`runs/${wide}`, row("t-1-1"), row("t-20"));
    assert.equal(await anna.count(row("t-20-1")), 0);
    await fold("t-20").click();
    await anna.sees(row("t-20-20"));

    // Long lists are loaded in parts.
    const long = await client.submit(longGraph(205));
    await client.reaches(long, "input_required");
    await anna.go(`runs/${long}`, row("long"));
    await anna.sees("#s-long-n200");
    assert.equal(await anna.count("#s-long-n201"), 0);
    await anna.find(".more button:text('5 more')").click();
    await anna.sees("#s-long-n205");
    assert.equal(await anna.count(".more"), 0);
    await client.ask("POST", `runs/${long}/cancel`, {});

    // The tree updates with the run, also in folded parts.
    const graph = { name: "g", mode: "sequential", steps: [
        { id: "first", agent_id: "ask", task_description: "First?" },
        { id: "second", agent_id: "ask", task_description: "Second?" },
    ] };
    const asks = await client.submit(graph);
    await client.reaches(asks, "input_required");
    await anna.go(`runs/${asks}`, "#live:text('● live')", `${row("first")} .mark.asks`, "#head a:text('1 question open')");
    const answer = async (child) => {
        const { questions } = await client.ask("GET", "questions?limit=100");
        const { number } = questions.find((one) => one.trace_id === asks && one.child_id === child);
        await client.ask("POST", `runs/${asks}/contexts/${child}/answers/${number}`, { answer: `${child} is done` });
    };
    await anna.find(row("first")).evaluate((row) => { row.ownerDocument.isTheSame = true; });
    await answer("first");
    await anna.sees(`${row("first")} .mark.good`);
    await anna.sees(`${row("second")} .mark.asks`);
    await answer("second");
    await anna.sees("#head .mark.good");
    await until("the actions are removed", async () => (await anna.count("#actions button:text('Cancel')")) === 0);
    assert.ok(await anna.page.evaluate(() => document.isTheSame), "the page was not loaded again");
    assert.equal(await anna.find("#live").textContent(), "");

    // Cancel asks for confirmation.
    const sleeps = await client.submit({ goal: "Sleep", agent_id: "sleep", child_id: "s", inputs: { ms: 3_600_000 } });
    await anna.go(`runs/${sleeps}`, "#live:text('● live')");
    const cancel = () => anna.find("#actions button:text('Cancel')").click();
    assert.match(await anna.replying(undefined, cancel), /Cancel “Sleep”\? All of its agents/);
    assert.equal((await client.run(sleeps)).outcome ?? null, null);
    await anna.replying("", cancel);
    await anna.sees("#head .mark:has-text('cancelled')");
    await until("a cancelled context has no button", async () => (await anna.count("#actions button:text('Cancel')")) === 0);

    // Raise asks for the amount, and explains an invalid one.
    const paused = await client.submit({ goal: "Spend", agent_id: "spend", child_id: "p", max_cost_usd: 0.03, on_exhausted: "pause", inputs: { usd: 0.01, calls: 5 } });
    await client.reaches(paused, "paused");
    await anna.go(`runs/${paused}`, "#live:text('● live')", "#head .mark:has-text('paused')");
    await anna.sees("#head .state:has-text('max_cost_usd = $0.03')");
    assert.doesNotMatch(await anna.find("#head").textContent(), /budget raise/, "the page has a button for it");
    await anna.sees("#asked h2:text('p waits for a larger budget')");
    const raise = async (form, usd) => {
        await anna.find(`${form} [name=max_cost_usd]`).fill(usd);
        return await anna.replying("", () => anna.find(`${form} button`).click());
    };
    anna.allow("status of 4");
    assert.match(await raise("#asked form.raise", "abc"), /Raise the ceilings of p\?/);
    await until("the page shows the mistake", async () => /abc|dollars/.test(await anna.find("#asked .told").textContent()));
    // The raised budget was used up at once: it may be raised again, on a new card.
    await raise("#asked form.raise", "0.04");
    await anna.sees("#asked [name=max_cost_usd][value='0.04']");
    await raise("#asked form.raise", "0.05");
    await anna.sees("#head .mark.good");
    await until("no context waits", async () => (await anna.count("#asked .card")) === 0);

    // The same for an inner agent, on its own page, which names the budget that pays for it.
    const inner = await client.submit({ name: "inner", max_cost_usd: 1, on_exhausted: "pause", inputs: { usd: 0.01, calls: 5 }, steps: [{ id: "spends", agent_id: "spend", task_description: "Spend", max_cost_usd: 0.03, input_from: ["usd", "calls"] }] });
    await until("the context waits", async () => (await client.found(inner))?.waiting_for_human);
    await anna.go("questions", `main a[href='runs/${inner}#asked']`);
    await anna.find(`main a[href='runs/${inner}#asked']`).click();
    await anna.sees("#asked h2:text('spends waits for a larger budget')");
    await anna.go(`runs/${inner}/contexts/spends`, "#live:text('● live')", "#asked form.raise", ".facts dd:has-text('drawn from the budget of inner')", ".facts dd:has-text('20 steps')");
    await raise("#asked form.raise", "0.5");
    await anna.sees("#head .mark.good");
    await anna.find("#head .money a").click();
    await anna.sees(".books text:has-text('spends')");
    await anna.leave();
}
