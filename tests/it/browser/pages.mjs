// Lists that are longer than one page, and the links between their pages: runs, the agents of a
// timeline, events, and journal entries.
import assert from "node:assert/strict";
import { Person, until } from "./page.mjs";

/** An agent whose journal has an entry for each answer and for each tool call: 10 times 26. */
const BUSY = {
    agent_id: "busy", kind: "llm", model: "scripted", tools: ["fs.list"], limits: { max_steps: 300 },
    script: [...Array(10).fill({ say: "I look.", call: Array(25).fill({ tool: "fs.list", arguments: {} }) }), { say: "All is there." }],
};

export default async function pages(place) {
    const { client } = place;
    const anna = await Person.enter(place, place.tokens.anna);
    const link = (name) => anna.page.getByRole("link", { name, exact: true });
    const follow = (name) => Promise.all([anna.page.waitForEvent("load"), link(name).click()]);

    // The list of runs, newest first. New runs do not shift rows from one page to the next.
    const numbers = [1, 2, 3, 4, 5, 6, 7];
    for (const number of numbers) await client.finish({ goal: `Number ${number}`, agent_id: "echo", labels: { part: "pages" } });
    const goals = () => anna.find("li.run .goal").allTextContents();
    await anna.go("?label=part%3Dpages&limit=3", "#live:text('● live')");
    assert.deepEqual(await goals(), ["Number 7", "Number 6", "Number 5"]);
    assert.equal(await link("Newest").count(), 0);
    await follow("Older");
    assert.deepEqual(await goals(), ["Number 4", "Number 3", "Number 2"]);
    await client.finish({ goal: "Number 8", agent_id: "echo", labels: { part: "pages" } });
    await anna.page.reload();
    assert.deepEqual(await goals(), ["Number 4", "Number 3", "Number 2"]);
    await follow("Older");
    assert.deepEqual(await goals(), ["Number 1"]);
    assert.equal(await link("Older").count(), 0, "there are no older runs");
    await follow("Newest");
    assert.deepEqual(await goals(), ["Number 8", "Number 7", "Number 6"]);

    // 553 agents.
    const wide = await client.finish({ goal: "grow", agent_id: "tree", child_id: "w", inputs: { depth: 2, width: 23 } });
    const agents = () => anna.find(".timeline tbody th a").allTextContents();
    await anna.go(`runs/${wide}/timeline`, ".timeline");
    const first = await agents();
    assert.equal(first.length, 500);
    assert.equal(first[0], "w");
    assert.equal(await link("Earlier").count(), 0);
    await follow("Later");
    const rest = await agents();
    assert.equal(new Set([...first, ...rest]).size, 553, "each agent is on one page");
    assert.equal(rest.length, 53);
    assert.equal(await link("Later").count(), 0);
    await anna.sees(".timeline tr:has(a:text-is('w-23-23')) rect.attempt");
    await anna.isAccessible();
    await follow("Earlier");
    assert.deepEqual(await agents(), first);

    // The run's events, by their numbers in the log.
    const events = () => anna.find("[id^=event-]").evaluateAll((rows) => rows.map((row) => Number(row.id.slice(6))));
    await anna.go(`runs/${wide}/events`, "[id^=event-]");
    const shown = await events();
    await follow("Later");
    const later = await events();
    assert.ok(later[0] >= shown.at(-1) && later.length === shown.length, `${later[0]} comes after ${shown.at(-1)}`);
    await follow("Earlier");
    assert.deepEqual(await events(), shown);

    // A long journal: the last 200 entries, and the ones before.
    await client.apply(BUSY);
    const long = await client.finish({ goal: "Look everywhere", agent_id: "busy", child_id: "looks" });
    const entries = () => anna.find("#journal > li").evaluateAll((all) => all.map((one) => Number(one.id.slice(2))));
    const from = (first, last) => [...Array(last - first + 1).keys()].map((place) => first + place);
    await anna.go(`runs/${long}/contexts/looks`, "#journal");
    const length = (await entries()).at(-1);
    assert.ok(length > 260);
    assert.deepEqual(await entries(), from(length - 199, length));
    await follow(`${length - 200} earlier entries`);
    assert.deepEqual(await entries(), from(1, length - 200));
    assert.equal(await anna.page.getByText("earlier entries").count(), 0);
    await anna.isAccessible();
    // A link to an entry opens the page that contains it.
    for (const entry of [2, length]) {
        await anna.go(`runs/${long}/contexts/looks?entry=${entry}#e-${entry}`, `#e-${entry}:target`);
        assert.ok(await anna.find(`#e-${entry}`).evaluate((one) => one.getBoundingClientRect().top < innerHeight), `entry ${entry} is seen`);
    }
    // A bar of its timeline opens the entry in the journal.
    await anna.go(`runs/${long}/timeline`, ".timeline a:has(rect.tool)");
    await anna.find(".timeline a:has(rect.tool)").first().click({ force: true });
    await anna.sees("#journal > li:target .what:text('tool')");
    await anna.leave();
}
