// The page of one agent: its journal grows, it is told something, taken back to a step, and cancelled.
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
    await anna.go(`runs/${trace}/contexts/paints`, "#live:text('● live')", ".journal #e-1", ".facts dd:text('scripted')", "a:text('Answer its question')");
    const steps = () => anna.count("#journal > li");
    const before = await steps();

    await anna.find("#e-1 summary").click();
    await anna.sees("#e-1 pre:has-text('Let me look.')");
    await anna.find("#tell").fill("Mind the roses");
    await anna.find("form.tell button").click();
    await anna.sees("form.tell .told:text('Done.')");
    assert.equal(await anna.find("#tell").inputValue(), "", "the next words may be written");

    // Taken back to its first step, it asks again.
    const restore = () => anna.find("#e-2 button:has-text('Restore')").click();
    assert.match(await anna.replying(undefined, restore), /back to step 2\?/);
    await anna.replying("", restore);
    await anna.sees("#e-2 .told:text('Done.')");
    const question = () => until("it asks", async () => {
        const { questions } = await client.ask("GET", "questions?limit=100");
        return questions.find((one) => one.trace_id === trace && one.number > 1);
    });
    await until("its journal has grown", async () => (await steps()) > before);
    const { number } = await question();
    await anna.sees("#journal > li:has-text('Mind the roses')");

    // It goes on before her eyes, to its end; what was opened stays open.
    await client.ask("POST", `runs/${trace}/contexts/paints/answers/${number}`, { answer: "green" });
    await anna.sees(".result pre:text('The fence is painted.')");
    await anna.sees("#journal > li:has-text('Now I know')");
    await anna.sees("#e-1 pre:has-text('Let me look.')");
    await until("nothing may be done about it any more", async () => (await anna.count("#actions button, #actions form")) === 0);
    await anna.isAccessible();

    const other = await client.submit({ goal: "Paint it again", agent_id: "painter", child_id: "paints" });
    await client.reaches(other, "input_required");
    await anna.go(`runs/${other}/contexts/paints`, "#live:text('● live')");
    await anna.replying("", () => anna.find(".actions button:text('Cancel')").click());
    await anna.sees("#head .mark:has-text('cancelled')");
    // The way back is there.
    await anna.find(".way a").first().click();
    await anna.sees("h1:text('Paint it again')");
    await anna.leave();
}
