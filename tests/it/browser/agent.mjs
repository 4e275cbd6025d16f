// The page of one agent: its journal grows; the agent gets a message, is restored to a step, and is
// cancelled.
import assert from "node:assert/strict";
import { Person, until } from "./page.mjs";

const PAINTER = {
    agent_id: "painter", kind: "llm", model: "scripted", tools: ["fs.list", "ask_human"],
    script: [
        { say: "Let me look.", call: [{ tool: "fs.list", arguments: {} }] },
        { say: "Let me ask.", call: [{ tool: "ask_human", arguments: { question: "Which colour shall the fence have?" } }] },
        { say: "Now I know: {last}.", call: [{ tool: "fs.list", arguments: {} }] },
        { say: "The fence is painted." },
    ],
};

export default async function agent(place) {
    const { client } = place;
    await client.apply(PAINTER);
    const trace = await client.submit({ goal: "Paint the fence", agent_id: "painter", child_id: "paints" });
    await client.reaches(trace, "input_required");
    const anna = await Person.enter(place, place.tokens.anna);
    await anna.go(`runs/${trace}/contexts/paints`, "#live:text('● live')", ".journal #e-1", ".facts dd:text('scripted')", "#asked h2:has-text('Which colour')");
    const steps = () => anna.count("#journal > li");
    const before = await steps();

    await anna.find("#e-1 summary").click();
    for (const seen of ["Let me look.", "Your task: Paint the fence", "fs.list, ask_human"]) await anna.sees(`#e-1 pre:has-text('${seen}')`);
    // The prompt, part by part; long parts are shown whole.
    await anna.go(`runs/${trace}/contexts/paints/entries/3`, "h1:text('Entry 3 of paints')", ".prompt summary:has-text('system')", ".prompt summary:has-text('assistant calls fs.list')", "section[aria-label='The entry'] pre:has-text('Let me ask.')");
    await anna.find(".prompt summary:has-text('assistant')").first().click();
    await anna.sees(".prompt pre:text('Let me look.')");
    await anna.isAccessible();
    await anna.go(`runs/${trace}/contexts/paints`, "#live:text('● live')");
    await anna.find("#e-1 summary").click();
    await anna.find("#tell").fill("Mind the roses");
    await anna.find("form.tell button").click();
    await anna.sees("form.tell .told:text('Done.')");
    assert.equal(await anna.find("#tell").inputValue(), "", "the text field is empty");

    // Restored to its first step, the agent asks again.
    const restore = () => anna.find("#e-2 button:has-text('Restore')").click();
    assert.match(await anna.replying(undefined, restore), /back to entry 2\?/);
    await anna.replying("", restore);
    await anna.sees("#e-2 .told:text('Done.')");
    const question = () => until("the agent asks its question", async () => {
        const { questions } = await client.ask("GET", "questions?limit=100");
        return questions.find((one) => one.trace_id === trace && one.number > 1);
    });
    await until("the journal has grown", async () => (await steps()) > before);
    const { number } = await question();
    await anna.sees("#journal > li:has-text('Mind the roses')");

    // The page follows the agent to its end; opened parts stay open.
    await anna.sees(`#asked article[aria-labelledby$='-${number}']`);
    await anna.find("#asked textarea").fill("green");
    await anna.replying("", () => anna.find("#asked button").click());
    await anna.sees(".result pre:text('The fence is painted.')");
    await anna.sees("#journal > li:has-text('Now I know')");
    await anna.sees("#e-1 pre:has-text('Let me look.')");
    await until("the actions are removed", async () => (await anna.count("#actions button, #actions form")) === 0);
    assert.equal(await anna.count("#asked .card"), 0, "an answered question is removed");
    await anna.isAccessible();

    // Another run branches from a step of this one.
    await anna.find("#e-2 button:has-text('Branch')").click();
    assert.equal(await anna.find("[name='branch_from.step']").inputValue(), "2");
    await anna.find("details.branch [name=goal]").fill("Paint the gate");
    await anna.find("details.branch button").click();
    await anna.sees("h1:text('Paint the gate')");

    const other = await client.submit({ goal: "Paint it again", agent_id: "painter", child_id: "paints" });
    await client.reaches(other, "input_required");
    await anna.go(`runs/${other}/contexts/paints`, "#live:text('● live')");
    await anna.replying("", () => anna.find(".actions button:text('Cancel')").click());
    await anna.sees("#head .mark:has-text('cancelled')");
    await until("the pressed button is removed", async () => (await anna.count("#actions button")) === 0);
    // The link back to the run exists.
    await anna.find(".way a").first().click();
    await anna.sees("h1:text('Paint it again')");
    await anna.leave();
}
