// The graph of a run: groups are frames, loops show their round, races their winner and fan-outs
// their items. A skipped step shows the reason, and the style of an arrow shows whether a value is
// read.
import assert from "node:assert/strict";
import { Person, until } from "./page.mjs";

const step = (id, more = {}) => ({ id, agent_id: "echo", task_description: `Do ${id}`, ...more });
const BOARD = {
    name: "board", mode: "parallel", on_partial_success: "continue", inputs: { topics: ["ants", "bees", "flies"], retryable: false, ms: 60_000 },
    steps: [
        step("read", { output_to: "found" }),
        step("use", { input_from: ["found"] }),
        step("after", { depends_on: ["read"] }),
        step("never", { when: 'outputs.found == "nothing"' }),
        step("each", { for_each: "topics" }),
        step("saved", { agent_id: "fail", input_from: ["retryable"], fallback: { agent_id: "echo", task_description: "Say less" } }),
        { id: "group", mode: "parallel", on_partial_success: "continue", steps: [step("good"), step("bad", { agent_id: "fail", input_from: ["retryable"] })] },
        { id: "polish", loop: { max_rounds: 5, until: 'outputs.draft == "Do write"' }, steps: [step("write", { output_to: "draft" })] },
        { id: "first", race: true, steps: [step("fast"), step("slow", { agent_id: "sleep", input_from: ["ms"] })] },
    ],
};

export default async function graph(place) {
    const { client } = place;
    const anna = await Person.enter(place, place.tokens.anna);
    // A step that has not begun has no link.
    const card = (id) => {
        const name = `text.step:text-matches("^. ${id}( ×\\\\d+)?$")`;
        return anna.find(`.graph > svg g:has(> a > ${name}, > ${name})`);
    };
    const says = async (id, words) => {
        const told = await card(id).locator("> a > text, > text").allTextContents();
        assert.ok(told.join(" / ").includes(words), `${id} says ${told.join(" / ")}, not ${words}`);
    };
    const trace = await client.finish(BOARD);
    await anna.go(`runs/${trace}/graph`, ".graph .card.good");

    await says("each", "3 of 3 items ended");
    await says("saved", "fallback");
    await says("polish", "round 1 of 5");
    await says("fast", "won");
    assert.doesNotMatch((await card("slow").locator("> a > text, > text").allTextContents()).join(), /won/);

    // A group is a frame around its steps.
    await says("group", "bad failed · 2 of 2 steps ended");
    assert.equal(await card("group").locator("> a > rect.card").count(), 2, "the border of the group is double");
    assert.equal(await card("good").locator("> a > rect.card").count(), 1);
    assert.equal(await anna.count(".graph > svg g.inside text.step"), 5, "all small groups are drawn in their frames");
    assert.match(await card("group").locator("> a").getAttribute("href"), /graph\?of=/);
    assert.match(await card("good").locator("> a").getAttribute("href"), /contexts\//);

    // A skipped step, and the values that its condition saw.
    await says("never", 'when outputs.found == "nothing"');
    await says("never", 'read found = "Do read"');
    await anna.sees(".skipped li:has(strong:text-is('never')):has-text('it read found = \"Do read\"')");

    // Edges that carry a value, and edges that only order steps.
    assert.equal(await anna.count(".graph > svg > .edge.order"), 1);
    assert.equal(await anna.count(".graph > svg > .edge:not(.order)"), 2, "`use` and `never` read the value");
    const dashes = (selector) => anna.find(selector).first().evaluate((edge) => getComputedStyle(edge).strokeDasharray);
    assert.notEqual(await dashes(".graph > svg > .edge.order"), "none");
    assert.equal(await dashes(".graph > svg > .edge:not(.order)"), "none");
    await anna.sees(".legend :text('only starts after it')");
    await anna.isAccessible();
    await card("group").locator("> a").focus();
    await anna.page.keyboard.press("Enter");
    await until("the group's own graph is shown", async () => anna.page.url().includes("graph?of="));
    await anna.sees(".graph text.step:has-text('bad')");
    assert.equal(await anna.count(".graph text.step"), 2);

    // A step that is taken over, and a step that was undone.
    const again = await client.finish({ rerun: { trace_id: trace, from: ["use"] } });
    await anna.go(`runs/${again}/graph`);
    await says("read", "taken over");
    const undo = { agent_id: "echo", task_description: "Take it back", max_cost_usd: 0.01 };
    const undone = await client.finish({ name: "undone", mode: "sequential", inputs: { retryable: false }, steps: [step("book", { undo }), step("pay", { agent_id: "fail", input_from: ["retryable"] })] });
    await anna.go(`runs/${undone}/graph`);
    await says("book", "undone");
    assert.equal(await anna.count(".graph > svg > .edge.order"), 1);

    // The graph follows the run: a waiting group is drawn as planned, and a running group as it is.
    const live = await client.submit({ name: "live", mode: "sequential", steps: [
        step("ask", { agent_id: "ask" }),
        { id: "then", steps: [step("one"), { ...step("two"), agent_id: "ask" }] },
    ] });
    await client.reaches(live, "input_required");
    await anna.go(`runs/${live}/graph`, "#live:text('● live')");
    assert.equal(await anna.count(".graph > svg g.inside .card.idle"), 2);
    await says("then", "2 steps");
    const asks = (await card("ask").locator("> a").getAttribute("href")).split("/").at(-1);
    await client.ask("POST", `runs/${live}/contexts/${asks}/answers/1`, { answer: "yes" });
    await anna.sees(".graph > svg g.inside .card.asks");
    await says("then", "1 of 2 steps ended");
    await client.ask("POST", `runs/${live}/cancel`, {});
    await anna.leave();
}
